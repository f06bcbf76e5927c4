"""What Dagster watches: read what is there, ask rota, yield."""
