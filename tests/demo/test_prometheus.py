"""Debian's Prometheus scrapes `rota export`, evaluates its rules, and an alert reaches the receiver of its Alertmanager."""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rota.cli.probes import Probes, WorkerSeen
from rota.machine import free_port
from tests.demo.small_group import Group, Run
from tests.demo.small_line import Line, open_line
from tests.waiting import LONG, wait_until

ROOT = Path(__file__).parents[2]
PROMETHEUS = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yaml]
alerting: {{alertmanagers: [{{static_configs: [{{targets: ["127.0.0.1:{alerts}"]}}]}}]}}
scrape_configs: [{{job_name: rota, scrape_timeout: 1s, static_configs: [{{targets: ["127.0.0.1:{exporter}"]}}]}}]
"""
ALERTMANAGER = """
route: {{receiver: test, group_by: [alertname], group_wait: 0s, group_interval: 1s}}
receivers: [{{name: test, webhook_configs: [{{url: "http://127.0.0.1:{receiver}/"}}]}}]
"""


def promtool(*words: str, given: str | None = None) -> str:
    program = shutil.which("promtool")
    assert program, "promtool is not here. Try: sudo apt install prometheus"
    done = subprocess.run([program, *words], input=given, capture_output=True, text=True, timeout=LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_nothing_to_say_of_the_metrics(run: Run) -> None:
    text = run("export", "--once").output
    assert "rota_needs" in text
    assert promtool("check", "metrics", given=text) == ""
    assert promtool("check", "metrics", given=Probes("g", "w", WorkerSeen).answer("/metrics")[1]) == ""


def test_promtool_reads_the_rules(run: Run, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(run("export", "--rules").output)
    assert f"SUCCESS: {rules.read_text().count('- alert:')} rules found" in promtool("check", "rules", str(rules))


@contextmanager
def start(folder: Path, *command: str, **environ: str) -> Iterator[None]:
    """A process in this folder, which is killed at the end."""
    with (folder / f"{Path(command[0]).name}.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.kill()
        process.wait(LONG)


@contextmanager
def receive() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The port of a receiver of alerts, and what it received."""
    received: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["alerts"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_port, received
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def line(group: Group, tmp_path: Path) -> Iterator[Line]:
    with open_line(group, tmp_path) as made:
        yield made


@pytest.fixture
def address(group: Group, tmp_path: Path, run: Run) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a Prometheus that scrapes the small group, and the alerts that arrived."""
    exporter, prometheus, alerts = free_port(), free_port(), free_port()
    program = shutil.which("prometheus-alertmanager")
    assert program, "Alertmanager is not here. Try: sudo apt install prometheus-alertmanager"
    (tmp_path / "rules.yaml").write_text(run("export", "--rules").output)
    (tmp_path / "prometheus.yaml").write_text(PROMETHEUS.format(exporter=exporter, alerts=alerts))
    environ = {"PYTHONPATH": str(ROOT), "ROTA_ZOOKEEPER": group.hosts, "ROTA_PIPELINES": str(tmp_path)}
    with ExitStack() as until_end:
        receiver, received = until_end.enter_context(receive())
        (tmp_path / "alertmanager.yaml").write_text(ALERTMANAGER.format(receiver=receiver))
        for command in (
            (sys.executable, "-m", "rota", "export", "--port", str(exporter)),
            (
                program, "--config.file=alertmanager.yaml", "--storage.path=alerts", "--cluster.listen-address=",
                f"--web.listen-address=127.0.0.1:{alerts}",
            ),
            (
                "prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=series",
                f"--web.listen-address=127.0.0.1:{prometheus}",
            ),
        ):  # fmt: skip
            until_end.enter_context(start(tmp_path, *command, **environ))
        yield f"http://127.0.0.1:{prometheus}", received


def ask(address: str, query: str) -> list[tuple[dict[str, str], float]]:
    """What Prometheus answers: the labels and the value of each series; nothing while it starts."""
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return [(one["metric"], float(one["value"][1])) for one in found]


def list_queries() -> dict[str, str]:
    """Each query of the dashboard, of all groups, and the title of its panel."""
    panels = json.loads((ROOT / "deploy" / "grafana" / "rota.json").read_text())["panels"]
    targets = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", ())]
    return {query.replace("$group", ".*"): title for title, query in targets}


def test_promtool_reads_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(list_queries())]
    file = tmp_path / "queries.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", str(file))


def wait_for_answers(prometheus: str, queries: dict[str, str], more: str = "") -> None:
    """Wait until Prometheus has series for each of the queries; fail with those for which it has none."""
    left = dict(queries)

    def has_all() -> bool:
        for query in [*left]:
            if ask(prometheus, f"{query}{more}"):
                del left[query]
        return not left

    try:
        wait_until(has_all, pause=0.5)
    except AssertionError:
        pytest.fail(f"Prometheus has no series{more} for {left}")


def test_each_query_of_the_dashboard_is_answered_before_and_after_something_happens(
    line: Line, address: tuple[str, list[dict[str, Any]]]
) -> None:
    prometheus, _ = address
    queries = list_queries()
    line.land("AA", 3)
    wait_for_answers(prometheus, queries)  # zeros: there is no table yet, and no partition has moved
    assert not ask(prometheus, next(iter(queries)).replace(".*", "another")), "the variable chooses a group"
    line.consume()
    line.group.move("flights:AA")
    line.group.refuse("flights:AA")
    words = ("rota_rows", "rota_commits", "rota_moves", "rota_handover", "rota_writes_refused")
    wait_for_answers(prometheus, {q: title for q, title in queries.items() if any(w in q for w in words)}, " > 0")


def test_an_alert_of_a_parked_partition_arrives_with_its_runbook(
    address: tuple[str, list[dict[str, Any]]], run: Run
) -> None:
    prometheus, received = address
    (found,) = wait_until(lambda: ask(prometheus, 'rota_needs{cause="parked", person="true"} > 0'), pause=0.2)
    assert (found[0]["group"], found[0]["kind"], found[1]) == ("default", "partition", 1.0)
    needs = [need for need in run.json("status")["needs"] if need["person"]]  # type: ignore[attr-defined]
    counted = ask(prometheus, 'sum(rota_needs{person="true", cause!="silent"})')
    assert counted[0][1] == sum(need["cause"] != "silent" for need in needs), "as `rota status` reports"
    alert = wait_until(lambda: next((a for a in received if a["labels"]["alertname"] == "RotaParked"), None), pause=0.2)
    assert (alert["status"], alert["labels"]["group"]) == ("firing", "default")
    assert alert["annotations"]["runbook_url"] == "docs/troubleshooting.md#parked"
    assert "rota retry PARTITION" in alert["annotations"]["description"]
    assert alert["annotations"]["summary"] == "parked: 1 of the kind partition in group default"
