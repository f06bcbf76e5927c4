"""rota: balanced, sticky, fenced assignment of source partitions to live Spark workers."""

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
