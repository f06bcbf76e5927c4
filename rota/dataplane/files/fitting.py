"""Divide unread files into batches and jobs, by size.

Law: each partition with unread files is in exactly one job, with one file or more. All but the first fit its caps.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from rota.ledger.values import Ranges
from rota.pipeline import Files


def fit_jobs(declared: Files, unread: Iterable[tuple[str, int, Sequence[int]]]) -> tuple[Ranges, ...]:
    """Return the ranges of each job. `unread`: partition, next offset, and sizes of its unread files."""
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
    """Return the sizes of the first files that fit into one batch; at least one."""
    room = min(declared.max_bytes, declared.max_job_bytes)
    return sizes[: max(1, sum(total <= room for total in accumulate(sizes)))]
