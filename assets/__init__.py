"""The assets, made for each group and each pipeline. The body of each calls one verb of rota."""
