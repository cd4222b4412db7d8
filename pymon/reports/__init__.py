"""Writing stages: each renders objects of the model for one kind of reader, knowing nothing else."""
