"""Protocols without a controller: each worker chooses its own target."""
