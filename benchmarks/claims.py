"""Measures how long partitions have no owner when all are assigned at once to workers that just joined.

    python benchmarks/claims.py [--partitions 100000] [--workers 2] [--patience 300]

It uses a real ZooKeeper and real `rota worker` processes without Spark. It prints how many partitions are owned as time
passes, then the seconds from the end of the publication until each partition has a live owner. The exit code is 1 if that
takes longer than `--patience` seconds.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.rebalance import rebalance


def main() -> int:
    """Measures once and prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--patience", type=float, default=300.0, help="seconds")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    with EmbeddedZooKeeper(folder / "zookeeper", heap="512m") as zookeeper, connect(zookeeper.hosts) as store:
        tree = GroupState(store, "default")
        tree.found()
        tree.grow("p", [f"key-{i:06}" for i in range(asked.partitions)])
        logs = [folder / f"w{i}.log" for i in range(asked.workers)]
        workers = [
            subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "rota",
                    "worker",
                    "--id",
                    log.stem,
                    "--no-spark",
                    "--zookeeper",
                    zookeeper.hosts,
                ],
                stderr=log.open("w"),
                env=os.environ,
            )
            for log in logs
        ]
        try:
            while len(tree.live()) < asked.workers:
                time.sleep(0.2)
            began = time.monotonic()
            rebalance(tree, "benchmark")
            click.echo(f"published in {time.monotonic() - began:.1f} s")
            seconds = _wait_until_owned(tree, asked.partitions, asked.patience)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    words = [line.split(" event=")[1].split()[0] for log in logs for line in log.read_text().splitlines()]
    click.echo(str({word: words.count(word) for word in sorted(set(words))}))
    click.echo(f"{asked.partitions} partitions, {asked.workers} workers: {seconds:.1f} s" if seconds else "not in time")
    return 0 if seconds else 1


def _wait_until_owned(tree: GroupState, partitions: int, patience: float) -> float | None:
    """The seconds until each partition has a live owner, None if that takes longer than `patience`."""
    began = time.monotonic()
    while (spent := time.monotonic() - began) < patience:
        views = tree.owned()
        live = {one.incarnation for one in tree.live()}
        owned = sum(view.incarnation in live for view in views.values())
        click.echo(f"{spent:6.1f} s: {owned} owned")
        if owned == partitions:
            return spent
        time.sleep(2 if partitions > 10_000 else 0.2)
    return None


if __name__ == "__main__":
    sys.exit(main())
