"""The peers: each runs in a process (and venv or JVM) of its own; here is how they are installed and called."""
