"""The epochs of a group for `rota why --at` and `rota history --since`: ZooKeeper's newest 200, and older ones that
Dagster keeps as materializations of the group's assignment.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from rota.cli import view
from rota.cli.page import choose_job
from rota.errors import ConfigError, RotaError, shown
from rota.ids import EPOCH, HAPPENED, MOVED, MOVES, PLACED
from rota.local.page import DagsterPage
from rota.settings import Settings

if TYPE_CHECKING:
    from rota.coordination.group_state import GroupState
    from rota.coordination.records import Epoch

EPOCHS = """query Epochs($key: AssetKeyInput!, $before: String, $limit: Int!) { assetOrError(assetKey: $key) { ... on Asset {
  assetMaterializations(beforeTimestampMillis: $before, limit: $limit) { timestamp runId metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
    ... on TableMetadataEntry { table { records } } } } } } }"""
PAGE = 50  # materializations in one answer of Dagster
MAX_PAGES = 40
CLOCKS = 600.0  # seconds by which Dagster may store an epoch later than ZooKeeper has it, or its clock may be ahead


def parse_moment(tree: "GroupState", text: str) -> float:
    """Return the seconds since 1970 of an option's time, which is local unless it has a zone. Raises ConfigError."""
    from rota.run.spans import parse_time

    moment = parse_time(text, inf, zone=None)
    if not 0 <= moment <= tree.store.now():
        raise ConfigError(f"{shown(text)} is not between 1970 and now. Give one like 2026-01-31T12:00")
    return moment


def read_epochs(tree: "GroupState", enough: "Callable[[Sequence[Epoch]], bool]") -> "tuple[tuple[Epoch, ...], str]":
    """Read the epochs, the oldest first, back until `enough` accepts them.

    Returns:
        The epochs, and a note if older ones are missing: from which time on they are known, and where the others are.
    """
    epochs = list(tree.epochs())
    if not epochs or epochs[0].epoch == 1 or enough(epochs):
        return tuple(epochs), ""
    settings = Settings.from_environment()
    page = DagsterPage(settings.dagster.rstrip("/"), settings.location)
    kept, why = epochs[0], f"Dagster at {page.address} has none that is older"
    try:
        for older in _list_stored(page, tree.group, kept.at + CLOCKS):
            epochs = [*(one for one in older if one.epoch < epochs[0].epoch), *epochs]
            if epochs[0].epoch == 1 or enough(epochs):
                return tuple(epochs), ""
    except RotaError as error:
        why = f"Dagster keeps older ones, but {error.what}"
    since = "" if epochs[0] is kept else f", Dagster since {view.format_time(epochs[0].at)} (epoch {epochs[0].epoch})"
    note = f"ZooKeeper has the epochs since {view.format_time(kept.at)} (epoch {kept.epoch}){since}. {why}"
    return tuple(epochs), note


def _list_stored(page: DagsterPage, group: str, before: float) -> "Iterator[list[Epoch]]":
    """Yield Dagster's epochs before this time: the newest page first, in each page the oldest epoch first."""
    job = choose_job(page.find_jobs(group, "rebalance"), page.location or None)
    key, end = {"path": [*job.prefix, group, "assignment"]}, int(before * 1000)
    for _ in range(MAX_PAGES):
        asset = page.ask(EPOCHS, key=key, before=str(end), limit=PAGE)["assetOrError"]
        if not (rows := asset.get("assetMaterializations", [])):
            return
        epochs = {one.epoch: one for one in map(_make_epoch, rows)}  # of repeated rows of an epoch, the oldest
        yield [epochs[number] for number in sorted(epochs)]
        end = int(rows[-1]["timestamp"])


def _make_epoch(row: Mapping[str, Any]) -> "Epoch":
    """The epoch of a materialization. Its moves are the first 100, and its time is Dagster's."""
    from rota.coordination.records import Epoch, Moved

    values = {e["label"]: e.get("text") or e.get("intValue") or e.get("table") for e in row["metadataEntries"]}
    table = values.get(MOVES)
    lines = [json.loads(line) for line in table["records"]] if isinstance(table, Mapping) else []
    moves = [
        Moved(
            partition=line["partition"],
            from_worker=None if line["from"] == "none" else line["from"],
            to_worker=line["to"],
            reason=line["reason"][:300],
        )
        for line in lines
    ]
    return Epoch(
        epoch=values.get(EPOCH) or 0,
        at=int(row["timestamp"]) / 1000,
        sentence=str(values.get(HAPPENED) or "")[:2000],
        moves=tuple(moves),
        moved=(values.get(MOVED) or 0) + (values.get(PLACED) or 0),
        run_id=row["runId"],
    )
