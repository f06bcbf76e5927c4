"""What a record is made of, whatever source it comes from: JSON, CSV, and bytes as they are."""
