"""The composition root. Nobody imports it."""
