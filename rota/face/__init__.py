"""Reports about a group: its needs, its health, its history."""
