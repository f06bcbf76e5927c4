"""The work of a run: check its rights, consume, replay, maintain, and report."""
