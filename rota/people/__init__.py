"""What an operator does to a pipeline: a module for each command."""
