"""Computes the proven optimum of the weighted yardstick by CP-SAT, without rota's code."""

from ortools.sat.python import cp_model

from rota.core.values import Snapshot

SCALE = 1_000_000


def find_optimum(snapshot: Snapshot, budget: int, seconds: float = 60.0) -> tuple[float, bool]:
    """The lowest imbalance over equal workers with at most `budget` moves, and whether it is proven in `seconds`."""
    loads = [round(float(x) * SCALE) for x in snapshot.load]
    owner = [int(c) for c in snapshot.owner]
    team = range(len(snapshot.workers))
    model = cp_model.CpModel()
    here = [[model.new_bool_var("") for _ in team] for _ in loads]
    for row in here:
        model.add_exactly_one(row)
    model.add(sum(here[i][o].Not() for i, o in enumerate(owner)) <= budget)
    worst = model.new_int_var(sum(loads) // len(team), sum(loads), "worst")
    for w in team:
        model.add(sum(load * row[w] for load, row in zip(loads, here, strict=True)) <= worst)
    model.minimize(worst)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    return solver.objective_value * len(team) / sum(loads), status == cp_model.OPTIMAL
