"""Measurements of rota, alone and beside its peers. `python -m benchmarks` times the planner."""
