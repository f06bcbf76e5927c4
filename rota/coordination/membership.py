"""Liveness: live nodes of workers and nodes of consuming runs, each for the time of the session that created it.

Laws:
1. An incarnation is a worker and a session. Only that session can create its live node, so `check(live node)` in a
   multi proves that the writer's session was alive when the write was ordered.
2. A lost reply is resolved by reading back.
3. However many partitions a worker owns, its run has room for those it names.
4. A worker waits while another process of its id is live. It does not wait for a session that only outlived its
   process.
5. A run's node is as old as what it names: of two runs that name the same partition, the older node came first.
6. The node of a worker or a run is made in one multi with a check of the settings that the process has read. So after
   `upgrade.py` has raised the floor of the group's level, no process below that level makes a node.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from rota.coordination.group_state import COMPARES, GroupState
from rota.coordination.levels import check_floor, with_build
from rota.coordination.records import Live, RunNode, encode
from rota.coordination.store import RECONNECTING, Check, Create, Delete, settle
from rota.errors import Conflict, CoordinationError, Unavailable, Unknown
from rota.ids import WAITING, incarnation_of, is_incarnation, worker_of
from rota.machine import is_running

# partitions that a run's node names at a time: their ids fit into a node, and into Dagster's run config
MAX_RUN = 1_000


def join(tree: GroupState, worker: str, live: Live) -> str:
    """Creates the worker's live node under the store's present session and returns the incarnation.

    Raises ConfigError (a bad id, or the level of the group), NoGroup, Undecodable (the group's settings), Unavailable (no
    session, or it changed on the way)."""
    tree.store.wait_active(RECONNECTING)
    path = _enter(tree, lambda session: tree.paths.live(incarnation_of(worker, session)), live)
    incarnation = path.rpartition("/")[2]
    if tree.store.get(tree.paths.waiting(incarnation)) is not None:
        with suppress(CoordinationError):  # it ends with the session
            tree.store.delete(tree.paths.waiting(incarnation))
    return incarnation


def _enter(tree: GroupState, path_of: Callable[[int], str], record: Live | RunNode) -> str:
    """Creates the node of a process, named by its session, if its build may join; see the sixth law. Returns its path.

    Raises ConfigError if its build may not join.
    """
    for attempt in range(COMPARES):
        seen = tree.settings()
        check_floor(tree.group, seen.record, tree.levels)
        path = path_of(tree.store.session)
        try:
            create_ephemeral(tree, path, record, Check(tree.paths.meta, seen.version))
        except Conflict as lost:
            if lost.path != tree.paths.meta or attempt == COMPARES - 1:
                raise
        else:
            return path
    raise AssertionError("not reached")


def rival(tree: GroupState, worker: str, live: Live) -> str | None:
    """The live incarnation of this worker that belongs to another process: on another host, or a running process on
    this one.

    None: the live incarnation belonged to this process, or to a process that ended here, or names no host.
    """
    names = [n for n in tree.store.children(tree.paths.lives) if is_incarnation(n) and worker_of(n) == worker]
    others = [n for n in names if n != incarnation_of(worker, tree.store.session)]
    records = tree.read_many([tree.paths.live(n) for n in others], Live)
    for name in others:
        read = records.get(tree.paths.live(name))
        if read is None and tree.paths.live(name) in tree.unreadable:
            return name  # not to be understood, but live
        if read is not None and read.record.host and not _ended(read.record, live):
            return name
    return None


def _ended(other: Live, live: Live) -> bool:
    """Whether the other process ended, or is this one.

    Containers may share a host name, and each has a process 1. Then only the session shows whether the other process
    ended.
    """
    same = other.host == live.host and other.machine in ("", live.machine)
    return same and (other.pid == live.pid or not is_running(other.pid))


def wait_beside(tree: GroupState, worker: str, live: Live) -> None:
    """Creates an ephemeral node that shows the live process of this worker that another one waits. It makes nothing
    live.
    """
    path = tree.paths.waiting(incarnation_of(worker, tree.store.session))
    with suppress(CoordinationError):
        create_ephemeral(tree, path, live)


def waiting_beside(tree: GroupState, worker: str, names: Iterable[str]) -> dict[str, Live]:
    """The names below `live` of processes that wait until this worker is gone, with their records."""
    mine = incarnation_of(worker, tree.store.session)
    theirs = [n for n in names if n.endswith(WAITING) and worker_of(n) == worker and not n.startswith(mine)]
    reads = tree.read_many([f"{tree.paths.lives}/{n}" for n in theirs], Live)
    return {path.rpartition("/")[2]: read.record for path, read in reads.items()}


def announce(tree: GroupState, incarnation: str, live: Live) -> None:
    """Replaces the live record of the incarnation. Raises Conflict if its live node is gone."""
    path, data = tree.paths.live(incarnation), encode(with_build(live, tree.levels))
    try:
        tree.store.set(path, data, -1)
    except Unknown:
        settle(tree.store)
        tree.store.set(path, data, -1)


def leave(tree: GroupState, incarnation: str) -> None:
    """Removes the live node; harmless if it is gone already."""
    remove_node(tree, tree.paths.live(incarnation))


def portions(partitions: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The partitions as many at a time as one run's node may name."""
    for start in range(0, len(partitions), MAX_RUN):
        yield tuple(partitions[start : start + MAX_RUN])


def create_liveness_node(tree: GroupState, run_id: str) -> None:
    """Creates the node that shows that the run is alive, also while it has no batch. Raises as `join`."""
    tree.store.wait_active(RECONNECTING)
    _enter(tree, lambda session: tree.paths.liveness(run_id, session), RunNode(partitions=()))


def register_run(tree: GroupState, run_id: str, incarnation: str, partitions: Iterable[str]) -> str:
    """Creates the run's ephemeral node, which each checkpoint write checks. Returns its path.

    The run must do this before it reads the target and the own records: the agent reads runs after the target.
    """
    tree.store.wait_active(RECONNECTING)
    path = tree.paths.run(incarnation, run_id, tree.store.session)
    mine = path.rpartition("/")[2].removeprefix(incarnation)
    for name, other in tree.working().items():
        if (
            name == f"{other}{mine}" and other != incarnation
        ):  # left behind: it must not count for the incarnation that it worked for before
            remove_node(tree, f"{tree.paths.runs}/{name}")
    create_ephemeral(tree, path, RunNode(partitions=tuple(sorted(partitions))))
    tree.store.sync()
    return path


def narrow_run(tree: GroupState, path: str, partitions: Iterable[str]) -> None:
    """Removes the partitions that the run will not read from its node, so that no worker waits for it. Raises Conflict
    if the node is gone.
    """
    tree.store.set(path, encode(with_build(RunNode(partitions=tuple(sorted(partitions))), tree.levels)), -1)


def end_run(tree: GroupState, path: str) -> None:
    """Removes the run's node; harmless if it is gone already."""
    remove_node(tree, path)


def create_ephemeral(tree: GroupState, path: str, record: Live | RunNode, *checks: Check) -> None:
    """Creates a node that lives as long as this session, if the `checks` hold.

    Raises Conflict if they do not, or if another session has the node.
    """
    store, session = tree.store, tree.store.session
    make = Create(path, encode(with_build(record, tree.levels)), ephemeral=True)
    for attempt in (1, 2, 3):
        try:
            store.multi([*checks, make])
        except Conflict as conflict:
            if conflict.cause != "exists" or not _ours(tree, path, session):
                raise
            # Left by this run's earlier batch: it names other partitions now, and a node that named them first is older.
            store.multi([*checks, Delete(path), make])
        except Unknown:
            settle(store)
            if store.get(path) is None and attempt < 3:
                continue
        node = store.get(path)
        if node is None or node.owner != session or store.session != session:
            if node is not None and node.owner == store.session:
                store.delete(path)
            raise Unavailable(f"The session ended while {path} was made. Join again")
        return


def _ours(tree: GroupState, path: str, session: int) -> bool:
    """Whether this session created the existing node: then an earlier attempt succeeded."""
    node = tree.store.get(path)
    return node is not None and node.owner == session


def remove_node(tree: GroupState, path: str) -> None:
    """Deletes a node; harmless if it is gone already."""
    try:
        tree.store.delete(path)
    except Conflict:
        return
    except Unknown:
        settle(tree.store)
        if tree.store.get(path) is not None:
            tree.store.delete(path)
