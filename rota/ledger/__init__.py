"""The ledger: what a commit says, what it compares, how it is tried again, and who owns the table."""
