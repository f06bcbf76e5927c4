"""The peers: each runs in its own process, venv or JVM."""
