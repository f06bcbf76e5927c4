"""`sticky`: counts in proportion to capacity with the fewest moves."""
