"""The probe: what runs inside a training process. Imports no stage of the daemon, raises nothing into training."""
