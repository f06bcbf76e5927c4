"""A store that does not answer holds no report up: questions with a bound, and a real S3 server, frozen and killed."""

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rota.coordination.group_state import GroupState
from rota.face import health
from rota.face.answers import Questions
from rota.face.health import HealthReader
from rota.local.bucket import serve_buckets
from rota.pipeline import Pipeline, delta, files
from simulator.memory_store import MemoryServer
from tests.processes import list_below
from tests.waiting import LONG, wait_until


def test_a_question_without_an_answer_holds_no_other_up_and_is_not_asked_twice() -> None:
    thaw, asked, questions = threading.Event(), list[str](), Questions[int]()

    def answer(name: str, waits: bool) -> int:
        asked.append(name)
        if waits:
            assert thaw.wait(LONG)
        return len(name)

    both: dict[str, Callable[[], int]] = {
        "frozen": partial(answer, "frozen", True),
        "well": partial(answer, "well", False),
    }
    for _ in range(3):
        assert questions.gather(both, 0.2) == {"well": 4}
    assert asked.count("frozen") == 1
    thaw.set()
    assert wait_until(lambda: questions.gather(both, LONG) == {"frozen": 6, "well": 4})


def test_what_a_question_raises_is_the_callers() -> None:
    def fail() -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Questions[int]().gather({"a": fail}, LONG)


def test_a_frozen_store_and_a_dead_one_are_reported_and_the_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`rota status --check` took 88 s beside a dead S3 server, and gave no answer in 150 s beside a frozen one."""
    tree = GroupState(MemoryServer().connect(), "default")
    tree.found()
    for name in ("cloud", "disk"):
        tree.grow(name, ["a"])
    with serve_buckets(tmp_path / "server") as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        bucket = f"s3://{server.make_bucket()}"
        (tmp_path / "land" / "a").mkdir(parents=True)
        disk = Pipeline(files(str(tmp_path / "land"), format="json", schema="n int"), delta(str(tmp_path / "table")))
        cloud = Pipeline(files(f"{bucket}/land", format="json", schema="n int"), delta(f"{bucket}/table"))
        pipelines = [replace(cloud, name="cloud"), replace(disk, name="disk")]
        reader = HealthReader()

        def find_faults() -> dict[str, str]:
            return {one.name: one.fault or one.refusal for one in reader.read(tree, pipelines)[0].pipelines}

        reader.read(tree, pipelines)
        (process,) = (one for one, command in list_below(os.getpid()).items() if server.endpoint[-5:] in str(command))
        monkeypatch.setattr(health, "ANSWER", 2.0)
        process.send_signal(signal.SIGSTOP)
        assert "does not answer within 2 s" in find_faults()["cloud"]
        assert find_faults()["disk"] == ""
        process.send_signal(signal.SIGCONT)
        wait_until(lambda: "does not answer" not in find_faults()["cloud"])
        process.kill()
        wait_until(lambda: find_faults()["cloud"])
        assert find_faults()["disk"] == ""
