"""The formats of a record, the same for every source: JSON, CSV, and bytes."""
