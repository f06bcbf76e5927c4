"""Measures many workers on one real ZooKeeper: the shipped agents without Spark, several in a process.

    python -m benchmarks.crowd --workers 300 --partitions 1000 --partitions 100000

Measured: the seconds until all workers are live, until all partitions are claimed after the first decision, and until all
are claimed again after a tenth of the workers died (without the session timeout); the largest record, the bytes of all
records, and CPU seconds of ZooKeeper and of all workers. A thread of this process decides, instead of Dagster, which
launches a run for each decision.
"""

import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import click

from rota.cli.worker import BUSY_PAUSE, IDLE_PAUSE
from rota.coordination.change_signal import ChangeSignal
from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.coordination.records import Live
from rota.errors import CoordinationError
from rota.group.agent import Agent
from rota.group.rebalance import rebalance
from rota.ids import key_of
from simulator.worlds import make_partitions

SESSION = 20.0  # seconds
EACH = 15  # workers of a process
PATIENCE = 300.0  # seconds
TICK = os.sysconf("SC_CLK_TCK")


def live_as(worker: str, hosts: str, group: str) -> None:
    changed = ChangeSignal()
    with connect(hosts, SESSION, connect_timeout=PATIENCE) as store:
        agent = Agent(
            GroupState(store, group), worker, Live(), lambda *_, **__: None,
            max_shutdown=120.0, session_timeout=store.negotiated,
        )  # fmt: skip
        while True:
            with suppress(CoordinationError):
                changed.listen(store, agent.paths.assign(worker))
            for _ in agent.cycle():
                pass
            changed.wait(agent.find_pause(BUSY_PAUSE, IDLE_PAUSE))


def live_as_all(workers: list[str], hosts: str, group: str) -> None:
    """These workers, a thread each."""
    for worker in workers:
        threading.Thread(target=live_as, args=(worker, hosts, group), daemon=True).start()
    threading.Event().wait()


def read_cpu(pid: int) -> float:
    """The CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def wait_for(done: Callable[[], bool]) -> float:
    """Seconds until it is so. Raises TimeoutError."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError(f"not within {PATIENCE:g} s")
        time.sleep(0.2)
    return time.monotonic() - began


def walk(tree: GroupState, path: str) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of each record below a znode, except own records, which all have one size."""
    for name in tree.store.children(path):
        here = f"{path}/{name}"
        node = tree.store.get(here)
        yield here, len(node.data) if node else 0
        if here != tree.paths.owns:
            yield from walk(tree, here)


def measure(hosts: str, server: int, workers: int, partitions: int) -> str:
    """A row of the table."""
    group, names = f"g{partitions}", [f"w{n:03}" for n in range(workers)]
    context = multiprocessing.get_context("spawn")
    teams = [
        context.Process(target=live_as_all, args=(names[at : at + EACH], hosts, group), daemon=True)
        for at in range(0, workers, EACH)
    ]
    with connect(hosts, 60.0) as store:
        tree, made = GroupState(store, group), make_partitions(partitions)
        tree.found()
        tree.grow(made[0].source, [key_of(p.id) for p in made])
        spent = read_cpu(server)

        def own_all() -> bool:
            live = {one.incarnation for one in tree.live()}
            held = tree.owned().values()
            return len(held) == partitions and all(own.incarnation in live for own in held)

        for team in teams:
            team.start()
        joined = wait_for(lambda: len(tree.live()) == workers)
        began = time.monotonic()
        rebalance(tree, "crowd")
        decided = time.monotonic() - began
        claimed = decided + wait_for(own_all)
        largest = max(walk(tree, tree.paths.root), key=lambda one: one[1])
        total = sum(size for _, size in walk(tree, tree.paths.root))
        own = read_cpu(server) - spent, sum(read_cpu(team.pid or 0) for team in teams)
        for team in teams[: max(1, len(teams) // 10)]:
            team.kill()
        left = workers - EACH * max(1, len(teams) // 10)
        wait_for(lambda: len(tree.live()) == left)
        began = time.monotonic()
        rebalance(tree, "crowd")
        again = time.monotonic() - began
        again += wait_for(own_all)
        for team in teams:
            team.kill()
    cells = [f"{workers}", f"{partitions:,}", *(f"{s:.1f}" for s in (joined, decided, claimed, again))]
    cells += [
        f"{largest[1]:,} ({largest[0].removeprefix(f'/rota/{group}/')})",
        f"{total:,}",
        *(f"{s:.0f}" for s in own),
    ]
    return f"| {' | '.join(cells)} |"


COLUMNS = ("workers", "partitions", "live s", "decided s", "claimed s", "a tenth killed: claimed s")
SIZES = ("largest record, bytes", "all but own, bytes", "ZooKeeper CPU s", "workers CPU s")


@click.command()
@click.option("--workers", default=300, show_default=True)
@click.option("--partitions", "sizes", multiple=True, type=int, default=(1_000, 100_000), show_default=True)
def main(workers: int, sizes: tuple[int, ...]) -> None:
    """Measures a crowd of workers."""
    click.echo(f"| {' | '.join((*COLUMNS, *SIZES))} |\n|{'---:|' * (len(COLUMNS) + len(SIZES))}")
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder, EmbeddedZooKeeper(folder, heap="1g") as zookeeper:
            assert zookeeper.process is not None
            click.echo(measure(zookeeper.hosts, zookeeper.process.pid, workers, size))
    click.echo(f"Load of the machine: {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
