"""rota: balanced, sticky, fenced assignment of source partitions to live Spark workers."""

from rota.pipeline import Group, Pipeline, delta, files

__all__ = ["Group", "Pipeline", "delta", "files"]
