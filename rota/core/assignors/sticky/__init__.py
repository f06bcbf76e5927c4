"""`sticky`: counts in proportion to capacity with the fewest moves.

`assignor` is the entry. If every worker may hold every partition, `quota` is a closed form for the counts. Otherwise
`constrained` computes the counts by flows: `balance` (law 2), then `fewest_moves` (law 3). `source_spread` spreads each
source evenly (law 4), within the `open_choices` that laws 1 to 3 leave.
"""
