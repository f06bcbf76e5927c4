"""A worker's probes: alive as long as its loop works, ready once it can own partitions and has read its target."""

import re
from dataclasses import replace
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from rota.cli.probes import UNTARGETED, Probes, WorkerSeen

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
STARTING = WorkerSeen(1, 20.0, unready="its Spark is not ready")
READY = WorkerSeen(2, 20.0, "w1@01", connected=True, has_target=True, partitions=7, spark_starts=2)


class Asked:
    """The probes of a worker that is what a test sets, at the time that it sets."""

    def __init__(self, seen: WorkerSeen) -> None:
        self.seen, self.clock = seen, 100.0
        self.probes = Probes("g", "w1", lambda: self.seen, lambda: self.clock)

    def ask(self, path: str, **changes: object) -> tuple[int, str]:
        self.seen = replace(self.seen, **changes)  # type: ignore[arg-type]
        return self.probes.answer(path)


def test_it_is_alive_while_its_loop_makes_steps_whatever_else_fails() -> None:
    one = Asked(STARTING)
    assert one.ask("/livez")[0] == 200
    one.clock += 1000.0
    assert one.ask("/livez", steps=2, connected=False)[0] == 200
    one.clock += 20.0
    assert one.ask("/livez")[0] == 200
    one.clock += 1.0
    assert one.ask("/livez") == (503, "the loop made no step for 21 s\n")
    assert one.ask("/livez", steps=3)[0] == 200


def test_it_is_ready_once_it_joined_can_work_and_has_its_target() -> None:
    one = Asked(STARTING)
    assert one.ask("/readyz") == (503, "its Spark is not ready\n")
    assert one.ask("/readyz", unready="") == (503, "it has not joined\n")
    assert one.ask("/readyz", incarnation="w1@01") == (503, "ZooKeeper does not answer\n")
    assert one.ask("/readyz", connected=True) == (503, "it has no target yet\n")
    assert one.ask("/readyz", has_target=True) == (200, "ok\n")
    assert one.ask("/readyz", unready="no executor") == (503, "no executor\n")
    assert one.ask("/readyz", unready="", connected=False)[0] == 503


def test_a_worker_that_gets_no_target_is_ready_after_a_while() -> None:
    one = Asked(replace(READY, has_target=False))
    assert one.ask("/readyz")[0] == 503
    one.clock += UNTARGETED
    assert one.ask("/readyz")[0] == 200
    assert one.ask("/readyz", incarnation="w1@02")[0] == 503, "another life waits again"


def test_the_protocol_lists_its_metrics() -> None:
    status, text = Asked(READY).ask("/metrics")
    found = [one for family in text_string_to_metric_families(text) for one in family.samples]
    assert status == 200
    assert all(one.labels == {"group": "g", "worker": "w1"} for one in found)
    assert [one.value for one in found] == [1, 1, 2, 7]
    section = PROTOCOL.read_text().split("| metric of a worker |")[1].split("\n\n")[0]
    assert [one.name for one in found] == re.findall(r"^\| `(\w+)`", section, re.M)


def test_there_is_no_other_page() -> None:
    assert Asked(READY).ask("/")[0] == 404
