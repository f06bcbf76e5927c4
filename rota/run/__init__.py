"""What a run does: check its rights, consume, replay, maintain, and report."""
