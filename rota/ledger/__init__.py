"""Commits rows to a table exactly once, in order, by one owner, also if other programs change the table."""
