"""What is shown of a group: what it needs, how healthy it is, its past."""
