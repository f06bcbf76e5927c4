"""The picture on `<group>/assignment`: which worker owned which partition when, with commits and refused writes."""

import base64
import logging
from typing import TYPE_CHECKING, Any

import dagster as dg

from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

MOST = 300  # partitions; a reader cannot tell more ribbons apart


def draw_picture(tree: "GroupState", pipelines: tuple[Pipeline, ...]) -> dict[str, Any]:
    """The picture as metadata; empty if it could not be drawn, or for more than `MOST` partitions. An epoch never fails for
    its picture."""
    from rota.history import draw_story, read_commits, read_story

    try:
        if sum(len(record.keys) for record in tree.partitions().values()) > MOST:
            return {}
        meta = tree.meta().id
        story = read_story(tree, [tick for pipeline in pipelines for tick in read_commits(pipeline, tree.group, meta)])
        image = base64.b64encode(draw_story(story)).decode()
    except Exception as error:  # matplotlib may raise anything
        logging.getLogger(__name__).warning("picture=missing reason=%s", error)
        return {}
    return {"picture": dg.MetadataValue.md(f"![who held what when](data:image/png;base64,{image})")}
