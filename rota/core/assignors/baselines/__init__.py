"""Baselines that read only the ids of workers and partitions, not loads."""
