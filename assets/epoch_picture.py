"""The picture on `<group>/assignment`: which worker owned which partition when, with commits and refused writes.

Law: it is a file beside Dagster's logs of runs, from where Dagster's page serves it; the event holds only its address. The
newest `KEPT` pictures of a group are kept. If the logs are no files of this machine, there is no picture.
"""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import dagster as dg

from rota.dagster.assets.names import Names
from rota.dagster.private import LOGS
from rota.pipeline import Pipeline

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState

MAX_PARTITIONS = 300  # a reader cannot distinguish more ribbons
KEPT = 50
KIND = "png"
INCHES, DPI = 6.0, 80  # 480 pixels: a page of 1440 pixels cuts a wider picture


def draw_picture(
    instance: dg.DagsterInstance, tree: "GroupState", pipelines: tuple[Pipeline, ...], names: Names, epoch: int
) -> dict[str, Any]:
    """Return the picture as metadata; empty if it could not be drawn, or for more than `MAX_PARTITIONS` partitions."""
    from rota.face.history import read_commits, read_story
    from rota.face.picture import draw_story

    key = names.picture(tree.group, epoch)
    try:
        if sum(len(record.keys) for record in tree.partitions().values()) > MAX_PARTITIONS:
            return {}
        if (file := find_place(instance, key)) is None:
            return {}
        meta = tree.meta().id
        story = read_story(tree, [tick for pipeline in pipelines for tick in read_commits(pipeline, tree.group, meta)])
        keep_picture(file, draw_story(story, None, inches=INCHES, dpi=DPI))
    except Exception as error:  # matplotlib may raise anything, and no epoch fails for its picture
        logging.getLogger(__name__).warning("picture=missing reason=%s", error)
        return {}
    address = "/".join(map(quote, (LOGS, *key, KIND)))
    gone = f"owners over time, until epoch {epoch} (the newest {KEPT} pictures are kept)"
    return {"picture": dg.MetadataValue.md(f"![{gone}](/{address})")}


def find_place(instance: dg.DagsterInstance, key: tuple[str, ...]) -> Path | None:
    """Return the file that Dagster's page serves under this key of a log; None if the logs are no files of this machine."""
    locate = getattr(instance.compute_log_manager, "get_captured_local_path", None)
    return Path(locate(key, KIND)) if locate else None


def keep_picture(file: Path, image: bytes) -> None:
    """Write the picture atomically, and remove the oldest ones in its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(image)
    temporary.replace(file)
    newest = sorted(file.parent.glob(f"*.{KIND}"), key=lambda one: one.stat().st_mtime_ns, reverse=True)
    for old in newest[KEPT:]:
        old.unlink(missing_ok=True)
