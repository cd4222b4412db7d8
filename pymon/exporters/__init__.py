"""The newest state, written for others: Prometheus' text, and the journal on disk."""
