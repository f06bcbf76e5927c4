"""Protocols in which workers decide alone: each chooses its own target, without a controller."""
