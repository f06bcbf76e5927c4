"""Measures the cost of finding new objects in a large bucket, and of finding the objects of a batch.

    python -m benchmarks.landing_size [--sizes 1000 100000 1000000] [--write]

The objects are in a bucket of versitygw, in a thousandth as many prefixes, at least ten. The table with the index is in the
same bucket. Each row is a new process with empty caches: its seconds, its CPU seconds, requests, and peak memory. `nothing`
is a process that lists nothing.

The objects are hard links in the server's folder, a file with its own ETag for each prefix: to put them would take an hour.
The server walks folders for each list, on the same cores, which takes most of the seconds.
"""

import argparse
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from benchmarks.costs import format_table
from benchmarks.pages import write_section
from rota.dataplane.files.files_source import FilesSource
from rota.dataplane.ports import ASSIGN
from rota.local.bucket import BucketServer, serve_buckets
from rota.pipeline import Pipeline, delta, files
from rota.registry import open_source

PAGE = Path(__file__).parents[1] / "docs" / "results.md"
MARK = "landing size"
BODY = b'{"n": 1}\n'
FEW, MANY = 100, 1000
HEAD = ("objects in prefixes", "what", "s", "CPU s", "requests", "peak MiB")


def place(root: Path, prefix: int, names: Sequence[str]) -> None:
    """Objects of these names below a prefix of this number."""
    folder = root / f"k{prefix:04}"
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / names[0]
    first.write_bytes(BODY)
    os.setxattr(first, "user.etag", f'"{os.urandom(16).hex()}"'.encode())
    for name in names[1:]:
        os.link(first, folder / name)


def open_pipeline(bucket: str) -> FilesSource:
    """The source over the bucket."""
    declared = files(f"s3://{bucket}/land", format="json", schema="n int")
    source = open_source(Pipeline(declared, delta(f"s3://{bucket}/table"), name="p"))
    assert isinstance(source, FilesSource)
    return source


def look(bucket: str) -> int:
    """A look that gives what is new its offsets; how many objects have one."""
    source = open_pipeline(bucket)
    return sum(source.observe(_partitions(source), ASSIGN).ends.values())


def find_batch(bucket: str) -> int:
    """What a run does before Spark reads a batch of the newest objects, a thousand over all prefixes: how many it may
    read."""
    source = open_pipeline(bucket)
    ends = source.observe(_partitions(source)).assigned
    each = max(1, MANY // len(ends))
    (ranges, *_) = source.plan_jobs({p: end - each for p, end in ends.items()}, ends)
    if source.find_broken(ranges):
        sys.exit("objects are not what they were")
    return sum(end - start for start, end in ranges.values())


def idle(bucket: str) -> int:
    """A process that has all its modules."""
    return len(open_pipeline(bucket).name) - 1


def _partitions(source: FilesSource) -> tuple[str, ...]:
    return tuple(f"p:{key}" for key in source.list_keys())


def measure(do: Callable[[str], int], bucket: str) -> tuple[int, float, float, int]:
    """What it gives; seconds, processor seconds, and MiB at the most."""
    began, busy = time.perf_counter(), time.process_time()
    found = do(bucket)
    took = time.perf_counter() - began, time.process_time() - busy
    return found, *took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def run_alone(server: BucketServer, do: Callable[[str], int], bucket: str, wanted: int) -> list[str]:
    """The cells of a process of its own. Exits where it finds another number of objects."""
    before = server.count_requests()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found, seconds, busy, peak = pool.submit(measure, do, bucket).result()
    if found != wanted:
        sys.exit(f"{found:,} objects instead of {wanted:,}: offsets are missing, or too many")
    return [f"{seconds:.2f}", f"{busy:.2f}", f"{server.count_requests() - before:,}", f"{peak:,}"]


def measure_size(folder: Path, count: int) -> list[list[str]]:
    """The rows of the table."""
    prefixes = max(10, count // 1000)
    rows: list[list[str]] = []
    with serve_buckets(folder) as server:
        os.environ |= server.environ
        bucket = server.make_bucket()
        root = server.data / bucket / "land"

        def add(what: str, do: Callable[[str], int], wanted: int) -> None:
            rows.append([f"{count:,} in {prefixes:,}", what, *run_alone(server, do, bucket, wanted)])
            sys.stdout.write(f"{' | '.join(rows[-1])}\n")
            sys.stdout.flush()

        for number in range(prefixes):
            place(root, number, [f"{n:07}.json" for n in range(number, count, prefixes)])
        add("nothing", idle, 0)
        add("all are new", look, count)
        add("none is new", look, count)
        place(root, prefixes // 2, [f"!{n}.json" for n in range(FEW)])
        add(f"{FEW} new in one prefix", look, count + FEW)
        for number in range(prefixes):
            place(root, number, [f"!!{n}.json" for n in range(MANY // prefixes)])
        there = count + FEW + MANY
        add(f"{MANY:,} new in {prefixes:,}", look, there)
        add(f"a batch of {MANY:,}", find_batch, MANY)
    return rows


def main() -> None:
    """Measures and prints; with `--write`, into the page of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 100_000, 1_000_000])
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    before, rows = os.getloadavg()[0], list[list[str]]()
    for size in given.sizes:
        with tempfile.TemporaryDirectory(prefix="rota-landing-") as name:
            rows += measure_size(Path(name), size)
    said = f"{format_table(HEAD, rows)}\n\nLoad before and after: {before:.1f}, {os.getloadavg()[0]:.1f}."
    sys.stdout.write(f"{said}\n")
    if given.write:
        write_section(PAGE, MARK, said)


if __name__ == "__main__":
    main()
