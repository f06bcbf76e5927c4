"""The bytes of a commit: how to parse them, fold them into a state, compare them with a draft, and write them.

Laws:
1. The protocol, columns and settings of a table are those in the last commit that states them. If a commit sets a
   transaction twice, the first action counts, as in delta-rs.
2. A commit that is empty, or ends within a line, is no commit: the disk lost the rest.
3. A draft follows commits of other writers if they set no transaction of the draft, removed no rows, neither added nor
   removed a file that it removes, and changed neither columns nor settings. A draft with `alone` follows no commit.
4. No two commits of this package have the same bytes: a writer that finds its bytes in the log has written them.
5. A commit that moves rows between files repeats the table's `metaData`, unchanged. delta-rs 1.6.6 ignores removes with
   `dataChange: false` when it searches for conflicts: its OPTIMIZE would add the moved rows again. After a `metaData` action
   its OPTIMIZE raises. Streaming readers ignore unchanged `metaData`.
"""

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from rota.deltalog.names import WRITER
from rota.deltalog.port import Draft

Action = tuple[str, Mapping[str, Any]]  # kind and fields, as Delta names them
STATE = ("txn", "metaData", "protocol")
FORMAT = {"provider": "parquet", "options": {}}  # of every Delta table
UNQUOTED = "/!$&'()*+,;=:@~"  # delta-rs leaves them as they are in a path


@dataclass(frozen=True, slots=True)
class State:
    """A table at one version, without its files. `transactions` is None if only delta-rs can look them up."""

    number: int
    protocol: Mapping[str, Any]
    metadata: Mapping[str, Any]
    transactions: Mapping[str, int] | None


def fold(number: int, commits: Iterable[Iterable[Action]], base: State | None = None) -> State:
    """Return the state after these commits, of which the last has this number.

    Args:
        base: the state before them; None if they begin with the first commit.

    Raises: ValueError, KeyError, TypeError.
    """
    protocol, metadata = (base.protocol, base.metadata) if base else ({}, {})
    known, lasting = dict(base.transactions or {}) if base else {}, base is None or base.transactions is not None
    for kind, body in (action for actions in commits for action in actions):
        if kind == "txn":
            known[body["appId"]], lasting = int(body["version"]), lasting and body.get("lastUpdated") is None
        elif kind == "protocol":
            protocol = body
        else:
            metadata = {**body, "configuration": dict(body["configuration"]), "format": FORMAT}
    if not protocol or not metadata:
        raise ValueError("the log does not state what the table is")
    return State(number, protocol, metadata, known if lasting else None)


def list_actions(commit: bytes, kinds: tuple[str, ...] = STATE) -> Iterator[Action]:
    """Yield the actions of these kinds, the last first. Raises ValueError."""
    *lines, last = commit.strip().split(b"\n")
    if not last:
        raise ValueError("a commit is empty")
    words = [f'"{kind}"'.encode() for kind in kinds]
    some = [line for line in lines if any(word in line for word in words)]
    for action in reversed(json.loads(b"[%s]" % b",".join((*some, last)))):
        yield from ((kind, action[kind]) for kind in kinds if action.get(kind) is not None)


def find_info(version: int, commit: bytes) -> dict[str, Any]:
    """Return the `commitInfo` of the commit, with its number as `version`. Raises ValueError."""
    infos = (json.loads(line).get("commitInfo") for line in commit.split(b"\n") if b'"commitInfo"' in line)
    return {**next(filter(None, infos), {}), "version": version}


def list_moved(commit: bytes) -> tuple[dict[str, int | None], frozenset[str]]:
    """Return path -> rows of the files that the commit adds (None if not stated), and the paths that it removes. Raises
    ValueError."""
    adds: dict[str, int | None] = {}
    removes: list[str] = []
    for kind, body in list_actions(commit, ("add", "remove")):
        if kind == "remove":
            removes.append(unquote(body["path"]))
        else:
            rows = json.loads(body.get("stats") or "{}").get("numRecords")
            gone = (body.get("deletionVector") or {}).get("cardinality", 0)
            adds[unquote(body["path"])] = None if rows is None else rows - gone
    return adds, frozenset(removes)


def list_transactions(actions: Iterable[Action]) -> dict[str, int]:
    """Return the transactions that the actions set. Raises ValueError if one may expire."""
    found = [body for kind, body in actions if kind == "txn"]
    if any(body.get("lastUpdated") is not None for body in found):
        raise ValueError("a transaction may expire; ours never do")
    return {body["appId"]: int(body["version"]) for body in found}


def write_commit(draft: Draft[Any], metadata: Mapping[str, Any]) -> bytes:
    """Return the draft as a commit in Delta's format. `metadata` is the table's."""
    now, change = int(time.time() * 1000), draft.changes
    mode = {"mode": "Append", "partitionBy": "[]"}
    about = {"timestamp": now, "operation": "WRITE", "operationParameters": mode, "txnId": str(uuid.uuid4())}
    actions: list[tuple[str, Mapping[str, Any]]] = [("commitInfo", {**about, "engineInfo": WRITER, **draft.said})]
    if draft.removes and not change:
        actions.append(("metaData", {name: value for name, value in metadata.items() if value is not None}))
    actions += [("txn", {"appId": name, "version": number}) for name, number in draft.sets.items()]
    for path, size in draft.removes.items():  # quoted as in the log
        actions.append(("remove", {"path": path, "deletionTimestamp": now, "dataChange": change, "size": size}))
    for file in draft.adds:
        stated = {"size": file.size, "modificationTime": file.modified, "dataChange": change, "stats": file.statistics}
        actions.append(("add", {"path": quote(file.path, UNQUOTED), "partitionValues": {}, **stated}))
    return "\n".join(json.dumps({kind: body}, separators=(",", ":")) for kind, body in actions).encode()


def clashes(commit: bytes, draft: Draft[Any], metadata: Mapping[str, Any]) -> bool:
    """Return whether a draft for a table with this metadata must not follow another writer's commit. Raises ValueError."""
    return any(_clashes(kind, body, draft, metadata) for kind, body in list_actions(commit, (*STATE, "remove", "add")))


def _clashes(kind: str, body: Mapping[str, Any], draft: Draft[Any], metadata: Mapping[str, Any]) -> bool:
    if kind == "txn":
        return body["appId"] in draft.sets
    if kind == "metaData":
        return any(body.get(name) != metadata[name] for name in ("id", "schemaString", "configuration"))
    if kind in ("add", "remove"):
        return body["path"] in draft.removes or (kind == "remove" and body.get("dataChange", True))
    return True
