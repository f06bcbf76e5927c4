"""Spark and the tables: sources, batches, commits. The only room that imports pyspark and deltalake."""
