"""Writing stages: each renders objects of the model for one kind of reader, and knows nothing else."""
