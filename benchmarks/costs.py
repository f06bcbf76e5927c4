"""Measures the cost of a stack of `rota up`: CPU seconds by process, and bytes of Dagster's storage by table and kind of
event. Law: every byte and every CPU second counts in one part, so the parts sum up to the whole.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import psutil

# A part of a command line -> what the process is. The first that fits counts.
PROCESSES = {
    "QuorumPeerMain": "ZooKeeper",
    "SparkConnectServer": "Spark of the workers",
    "rota worker": "agents of the workers",
    "dagster_webserver": "Dagster's page",
    "dagster._daemon": "Dagster's daemon",
    "code-server": "Dagster's code server, outer",
    "api grpc": "Dagster's code server, inner: sensors",
    "multiprocessing": "runs, and the process they are forked from",
}


BESIDE = "beside the databases"


def read_cpu() -> Counter[tuple[int, str]]:
    """Processor seconds of each descendant of this process, by process id and what it is; ended ones that it waited for
    included."""
    found: Counter[tuple[int, str]] = Counter()
    for process in psutil.Process().children(recursive=True):
        try:
            times, line = process.cpu_times(), " ".join(process.cmdline())
        except psutil.NoSuchProcess:
            continue
        what = next((name for mark, name in PROCESSES.items() if mark in line), "the others")
        found[process.pid, what] += times.user + times.system + times.children_user + times.children_system
    return found


def sum_up_cpu(before: Counter[tuple[int, str]], after: Counter[tuple[int, str]]) -> Counter[str]:
    """Return the CPU seconds between the two readings by kind of process. A process that ended counts for its parent."""
    total: Counter[str] = Counter()
    for (pid, what), seconds in after.items():
        total[what] += seconds - before[pid, what]
    return total


def read_storage(home: Path) -> Counter[str]:
    """Return the bytes by kind: a table with its indexes, the databases of runs, logs.

    `BESIDE` are SQLite's files beside a database (`-wal`, `-shm`), some 4 MB each. SQLite reuses them and deletes them when
    no process has the database open, so they do not count as growth."""
    found: Counter[str] = Counter()
    for path in filter(Path.is_file, home.rglob("*")):
        name, size = str(path.relative_to(home)), path.stat().st_size
        if name.endswith(("-wal", "-shm", "-journal")):
            found[BESIDE] += size
        elif not name.endswith(".db"):
            found["logs of runs, and other files"] += size
        elif path.parent.name == "runs" and path.name not in ("index.db", ".db"):
            found["databases of runs"] += size
        else:
            found.update({f"{name}: {table}": size for table, size in read_tables(path).items()})
    return found


def open_base(base: Path) -> closing[sqlite3.Connection]:
    """Open a database for reading. Close it soon: an open reader keeps SQLite from merging the file beside it."""
    return closing(sqlite3.connect(f"file:{base}?mode=ro", uri=True))


def read_tables(base: Path) -> Counter[str]:
    """The bytes of each table of a database, its indexes included."""
    found: Counter[str] = Counter()
    with open_base(base) as opened:
        owners = dict(opened.execute("SELECT name, tbl_name FROM sqlite_master"))
        for name, size in opened.execute("SELECT name, SUM(pgsize) FROM dbstat GROUP BY name"):
            found[owners.get(name, name)] += int(size)
    return found


def read_events(home: Path) -> tuple[Counter[str], Counter[str]]:
    """How many events there are of each kind, and their bytes, in the run's own database and in the index together."""
    count, size = Counter[str](), Counter[str]()
    for base in (home / "history" / "runs").glob("*.db"):
        asked = "SELECT COALESCE(dagster_event_type, 'log'), COUNT(*), SUM(LENGTH(event)) FROM event_logs GROUP BY 1"
        with open_base(base) as opened:
            for kind, number, length in opened.execute(asked):
                count[kind] += number
                size[kind] += length
    return count, size


def count_rows(base: Path, table: str, where: str = "1") -> int:
    """How many rows of the table there are."""
    with open_base(base) as opened:
        return int(opened.execute(f"SELECT COUNT(*) FROM {table} WHERE {where}").fetchone()[0])


def format_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] + ["---:"] * (len(lines[0]) - 1))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe_machine() -> str:
    """A line that describes the machine, and how busy it is."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
