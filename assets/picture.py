"""The ribbon picture on `<group>/assignment`: who held which partition when, with commits and refused writes."""

import base64
import logging
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.tree import Tree

MOST = 300  # partitions: more ribbons than that nobody can tell apart


def ribbon(tree: "Tree", pipelines: tuple[Pipeline, ...]) -> dict[str, Any]:
    """The picture as metadata; nothing where there is none. Law: an epoch never fails for its picture."""
    from rota.history import commits_of, draw, read

    try:
        if sum(len(record.keys) for record in tree.partitions().values()) > MOST:
            return {}
        meta = tree.meta().id
        story = read(tree, [tick for pipeline in pipelines for tick in commits_of(pipeline, tree.group, meta)])
        image = base64.b64encode(draw(story)).decode()
    except Exception as error:  # a picture is no promise, and matplotlib may raise anything
        logging.getLogger(__name__).warning("picture=missing reason=%s", error)
        return {}
    return {"picture": dg.MetadataValue.md(f"![who held what when](data:image/png;base64,{image})")}
