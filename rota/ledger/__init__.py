"""The laws of a table: exactly once, in order, by one owner, whatever other programs do to it."""
