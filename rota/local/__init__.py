"""Rota's processes on one machine, for `rota up` and `rota demo`: ZooKeeper, workers, Dagster, and some data for them.

Law: nothing here decides, consumes or commits, and it imports neither Dagster nor the data plane.
"""
