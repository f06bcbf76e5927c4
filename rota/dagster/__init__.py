"""Rota as a library of Dagster: the assets, sensors and resources that this repository keeps at its root."""
