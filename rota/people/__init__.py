"""Commands of operators on a pipeline, a module each."""
