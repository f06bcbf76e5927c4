"""Pulsar's load shedders: `avg-shed`, and the two that it replaced, `threshold-shed` and `uniform-shed`."""
