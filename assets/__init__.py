"""The assets of each group and each pipeline. The body of each asset calls one verb of rota."""
