"""The columns that rota adds to a record: the names that sources, jobs and tables share."""

PARTITION, OFFSET = "_partition", "_offset"  # the origin of a row; each row of a table has both
CORRUPT = "_corrupt"  # the raw text of a record that does not match the schema; null for a good one
FieldPath = tuple[str, ...]  # the names of the columns and structs above a field, and its own
