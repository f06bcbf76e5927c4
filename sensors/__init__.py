"""The sensors: each reads, asks a verb of rota what is due, and yields run requests."""
