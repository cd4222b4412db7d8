"""The one place that knows all stages: the order of the flow, its schedule, and the doors to the outside."""
