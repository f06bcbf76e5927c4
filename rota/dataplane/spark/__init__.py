"""Spark: sessions, servers, and the job that reads, transforms and writes."""
