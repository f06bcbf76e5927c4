"""rota: balanced, sticky, fenced assignment of source partitions to live Spark workers.

A file of the folder `pipelines/` declares one pipeline, and may declare the group that serves it:

    >>> from rota import Group, Pipeline, delta, files
    >>> source = files("/data/orders", format="json", schema="id long, amount double")
    >>> pipeline = Pipeline(source, delta("/tables/orders"), transform=lambda df: df.where("amount > 0"), group="night")
    >>> group = Group("night", assignor="sticky-load", budget=4, cooldown=300)
    >>> pipeline.group == group.name
    True

`read_moves(group)` returns the moves of the last 200 epochs as a pandas DataFrame:

    >>> moves = rota.read_moves("night")  # doctest: +SKIP
"""

from typing import TYPE_CHECKING, Any

from rota.pipeline import Group, Pipeline, delta, files

if TYPE_CHECKING:
    from rota.face.history import read_moves

__all__ = ["Group", "Pipeline", "delta", "files", "read_moves"]


def __getattr__(name: str) -> Any:
    """Imports `rota.read_moves` on first use, so that a pipeline file does not import its libraries."""
    if name == "read_moves":
        from rota.face.history import read_moves

        return read_moves
    raise AttributeError(f"module 'rota' has no attribute {name!r}")
