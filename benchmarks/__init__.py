"""Ours beside the others, on the same states, in one run: `python -m benchmarks`."""
