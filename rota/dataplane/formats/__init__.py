"""The formats of records, the same in every source: JSON, CSV and bytes."""
