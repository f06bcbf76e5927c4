"""Delta tables as the tables of a pipeline."""
