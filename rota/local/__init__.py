"""Starts rota's processes on one machine, for `rota up` and `rota demo`: ZooKeeper, workers and Dagster, with some data.

Law: the package decides, consumes and commits nothing, and imports neither Dagster nor the data plane.
"""
