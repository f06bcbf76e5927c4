"""Runs that kill themselves with SIGKILL, each at one step of the protocol: test_kill starts them as one process.

The process imports the modules of a run before it forks: the imports take more than half the time of a short run.
"""

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyspark.sql.connect.session  # noqa: F401  # otherwise each run imports it when it connects

from rota.catalog import load
from rota.coordination.checkpoint import Entry
from rota.coordination.client import connect
from rota.coordination.group_state import GroupState
from rota.dataplane.files.file_index import FileIndex
from rota.dataplane.spark import writing
from rota.ledger.ledger import Ledger
from rota.registry import open_ports
from rota.run import consume as verb

STEPS = (
    "indexed",
    "claimed",
    "in the job",
    "written",
    "set aside",
    "before the commit",
    "committed",
    "reported",
    "checkpointed",
)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(real: Callable[..., Any], of: str = "") -> Callable[..., Any]:
    """Call the real method, then kill the process. With `of`, only for this table."""

    def call(*args: Any, **more: Any) -> Any:
        result = real(*args, **more)
        if not of or (isinstance(args[0], Ledger) and Path(args[0].location).name == of):
            die()
        return result

    return call


def die_before(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        if isinstance(args[0], Ledger) and Path(args[0].location).name == "main":
            die()
        return real(*args, **more)

    return call


def die_meanwhile(real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        threading.Timer(0.1, die).start()
        result = real(*args, **more)
        die()
        return result

    return call


def die_at_checkpoints(real: Callable[..., Any], *, first: bool) -> Callable[..., Any]:
    """Kill the process at the checkpoints of a batch: after they are written if `first`, else before."""

    def call(tree: GroupState, run: str, entries: Sequence[Entry]) -> Any:
        batch = any(entry.checkpoint.offset for entry in entries)
        if batch and not first:
            die()
        result = real(tree, run, entries)
        if batch:
            die()
        return result

    return call


def arm(step: str) -> None:
    what: dict[str, tuple[Any, str, Callable[..., Any]]] = {
        "indexed": (FileIndex, "extend", die_after(FileIndex.extend)),
        "claimed": (Ledger, "claim", die_after(Ledger.claim, "main")),
        "in the job": (writing, "write", die_meanwhile(writing.write)),
        "written": (writing, "write", die_after(writing.write)),
        "set aside": (Ledger, "commit", die_after(Ledger.commit, "quarantine")),
        "before the commit": (Ledger, "commit", die_before(Ledger.commit)),
        "committed": (Ledger, "commit", die_after(Ledger.commit, "main")),
        "reported": (verb, "write_checkpoints", die_at_checkpoints(verb.write_checkpoints, first=False)),
        "checkpointed": (verb, "write_checkpoints", die_at_checkpoints(verb.write_checkpoints, first=True)),
    }
    owner, name, replacement = what[step]
    setattr(owner, name, replacement)


SESSION = 8.0  # seconds; a session must not end before its run, even on a busy machine


def run(hosts: str, group: str, pipelines: str, incarnation: str, step: str, *keys: str) -> None:
    arm(step)
    pipeline = load(Path(pipelines)).pipelines["p"]
    with connect(hosts, SESSION) as store:
        partitions = [pipeline.partition(k) for k in keys]
        tree = GroupState(store, group)
        ports = open_ports(pipeline, group, tree.meta().id)
        events = verb.consume(tree, pipeline, incarnation, partitions, f"died-{group}", ports)
        for event in events:
            sys.stdout.write(f"{type(event).__name__} {event.partition}\n")
            sys.stdout.flush()
    raise SystemExit(f"survived {step}")


def fork(out: str, *of: str) -> int:
    """Start a process for the run `of`. It writes its events to the file `out`."""
    pid = os.fork()
    if not pid:
        file = os.open(out, os.O_WRONLY | os.O_CREAT, 0o600)
        for said in (1, 2):
            os.dup2(file, said)
        try:
            run(*of)
        except BaseException:
            traceback.print_exc()
        os.kill(os.getpid(), signal.SIGABRT)
    return pid


if __name__ == "__main__":
    pids = [fork(*one) for one in json.load(sys.stdin)]
    ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    sys.stdout.write(json.dumps(ends))
