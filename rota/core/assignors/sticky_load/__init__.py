"""`sticky-load`: the largest utilization as low as a few moves allow.

`assignor` is the entry. `placement` places partitions without an owner. `noise_band` decides whether an imbalance is more
than noise in the measured loads. `exhaustive_search` and `local_search` find the moves.
"""
