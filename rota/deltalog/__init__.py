"""Read, write, cache and pack the log of a Delta table. See docs/deltalog.md."""
