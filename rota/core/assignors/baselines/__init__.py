"""Baselines that read only which workers and partitions there are."""
