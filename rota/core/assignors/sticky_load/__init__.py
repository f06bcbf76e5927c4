"""`sticky-load`: the largest utilization as low as a few moves allow."""
