"""The columns that a record has beside its own: the words that a source, a job and a table share."""

PARTITION, OFFSET = "_partition", "_offset"  # where a row is from; every row of a table has both
CORRUPT = "_corrupt"  # the raw text of a record that does not match the schema; null for a good one
FieldPath = tuple[str, ...]  # the names of the columns and structs above a field, and its own
