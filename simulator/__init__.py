"""Runs the shipped code in virtual time: worlds, faults, judges. Law: no module of rota imports it, and the wheel has none
of it."""
