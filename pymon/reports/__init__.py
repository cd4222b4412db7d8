"""Writing stages: each renders objects of the model for one reader, knowing nothing else."""
