"""`sticky`: counts in proportion to capacity with the fewest moves.

`assignor` starts here. If every worker may hold every partition, `quota` is a closed form for the counts. Otherwise
`constrained` finds them by flows: `balance` (law 2), then `fewest_moves` (law 3). Law 4, each source spread evenly, is
`source_spread`, and `open_choices` is what laws 1 to 3 leave open to it.
"""
