"""What goes into one batch, and into one job: by the sizes of files.

Law: each partition with something new has one file or more in exactly one job, and no more than its caps allow.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from rota.ledger.values import Ranges
from rota.pipeline import Files


def fit_jobs(declared: Files, unread: Iterable[tuple[str, int, Sequence[int]]]) -> tuple[Ranges, ...]:
    """The ranges of each job, given each partition, where it stands, and the sizes of its unread files."""
    jobs: list[dict[str, tuple[int, int]]] = []
    count = size = 0
    for p, at, sizes in unread:
        if not (taken := _take_fitting(declared, sizes)):
            continue
        count, size = count + len(taken), size + sum(taken)
        if not jobs or count > declared.max_job_files or size > declared.max_job_bytes:
            jobs.append({})
            count, size = len(taken), sum(taken)
        jobs[-1][p] = at, at + len(taken)
    return tuple(jobs)


def _take_fitting(declared: Files, sizes: Sequence[int]) -> Sequence[int]:
    """Of the files, within the caps on their number, those that go into one batch: by size, but at least one."""
    room = min(declared.max_bytes, declared.max_job_bytes)
    return sizes[: max(1, sum(total <= room for total in accumulate(sizes)))]
