"""The composition root of Dagster's code location. No other module imports it."""
