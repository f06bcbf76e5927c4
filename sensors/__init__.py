"""The sensors. Each reads, asks a function of rota which work is due, and yields run requests."""
