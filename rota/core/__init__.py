"""Decisions as pure functions of frozen values: no clock, no I/O, no randomness of its own."""
