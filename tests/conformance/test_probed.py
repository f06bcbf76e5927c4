"""The probes of a real `rota worker`: not ready before it has its target, alive without ZooKeeper."""

import urllib.error
import urllib.request
from pathlib import Path

from rota.coordination.embedded import EmbeddedZooKeeper
from rota.coordination.group_state import GroupState
from rota.machine import free_port
from tests.conformance.processes import Start
from tests.conformance.targets import aim, incarnation, wait_until_owned
from tests.waiting import LONG, wait_until


def ask(port: int, path: str) -> tuple[int, str]:
    """The status and the text; 0 if there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LONG) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def test_a_worker_is_ready_once_it_has_its_target_and_counts_what_it_owns(start: Start, real: GroupState) -> None:
    port = free_port()
    start("w1", "--no-spark", "--probe-port", str(port))
    wait_until(lambda: incarnation(real, "w1"))
    assert ask(port, "/readyz") == (503, "it has no target yet\n")
    aim(real, w1="12")
    wait_until_owned(real, w1="12")
    assert wait_until(lambda: ask(port, "/readyz") == (200, "ok\n"))
    assert wait_until(
        lambda: f'rota_worker_partitions{{group="{real.group}",worker="w1"}} 2\n' in ask(port, "/metrics")[1]
    )


def test_without_zookeeper_it_is_alive_and_not_ready(start: Start, tmp_path: Path) -> None:
    port = free_port()
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        worker = start("w1", "--no-spark", "--probe-port", str(port), hosts=server.hosts)
        worker.hears("event=no-group")
        server.kill()
        worker.hears("event=suspended")
        assert ask(port, "/livez") == (200, "ok\n")
        assert ask(port, "/readyz")[0] == 503


def test_a_port_that_is_taken_is_one_line(start: Start, real: GroupState) -> None:
    port = free_port()
    start("w1", "--no-spark", "--probe-port", str(port))
    wait_until(lambda: ask(port, "/livez")[0])
    second = start("w2", "--no-spark", "--probe-port", str(port))
    assert second.ends() == 2
    assert "Choose another --probe-port" in second.hears("Probes cannot be served")
