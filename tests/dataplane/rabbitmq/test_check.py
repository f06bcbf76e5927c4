"""`rota check` on pipelines of RabbitMQ: one line states the fault and the next step."""

import json
import os
import subprocess
import sys
from pathlib import Path

from rota.machine import free_port
from rota.rabbitmq import Publisher
from tests.dataplane.rabbitmq.broker import Broker

TEXT = """
from rota import Pipeline, delta
from rota.rabbitmq import {kind}
pipeline = Pipeline(source={kind}({url!r}, prefix={prefix!r}, count=2, schema="n int"), table=delta({table!r}))
"""


def test_check_reports_in_one_line_why_queues_cannot_be_read(tmp_path: Path, broker: Broker, prefix: str) -> None:
    with Publisher(broker.url, prefix, 2):
        pass
    with broker.connect() as connection:
        channel = connection.channel()
        for n in range(2):
            channel.queue_declare(f"{prefix}shared{n}", durable=True)
    nowhere = f"amqp://guest:hunter2hunter2@127.0.0.1:{free_port()}/%2f"
    cases = {
        "good": ("queues", broker.url, prefix),
        "away": ("queues", nowhere, prefix),
        "denied": ("queues", broker.url.replace("guest:guest", "guest:hunter2hunter2"), prefix),
        "gone": ("queues", broker.url, f"{prefix}none"),
        "shared": ("queues", broker.url, f"{prefix}shared"),
        "plain": ("streams", broker.url, prefix),
    }
    (tmp_path / "code").mkdir()
    for name, (kind, url, start) in cases.items():
        text = TEXT.format(kind=kind, url=url, prefix=start, table=str(tmp_path / name))
        (tmp_path / "code" / f"{name}.py").write_text(text)
    environ = {**os.environ, "ROTA_ZOOKEEPER": "127.0.0.1:1", "ROTA_PIPELINES": str(tmp_path / "code")}
    done = subprocess.run(
        [sys.executable, "-m", "rota", "check", "--json"], env=environ, capture_output=True, text=True
    )
    assert "hunter2" not in done.stdout + done.stderr
    probes = {p["name"]: (p["works"], p["seen"]) for p in json.loads(done.stdout)["probes"]}
    assert not [name for name in probes if name.startswith(("files of", "clock of"))], "no message changes in place"
    said = {name: probes[f"source of {name}"] for name in cases}
    place = f"RabbitMQ at 127.0.0.1:{broker.port}, vhost '/',"
    assert said["good"] == (True, f"{place} queues {prefix}0 to {prefix}1 has 2 partitions: 0 1")
    assert {name for name, (works, _) in said.items() if works} == {"good"}
    assert not any("\n" in seen for _, seen in said.values())
    away, denied, gone, shared, plain = (said[name][1] for name in ("away", "denied", "gone", "shared", "plain"))
    assert away.endswith("reports: Connection refused. See whether it is up and lets this user in")
    assert "ACCESS_REFUSED" in denied
    assert gone.startswith(f"{place} has no {prefix}none0 and 1 more. Start a rota.rabbitmq.Publisher")
    assert shared.startswith(f"{prefix}shared0 was made without x-single-active-consumer (PRECONDITION_FAILED")
    assert plain.startswith(f"{prefix}0 is no stream (PRECONDITION_FAILED")
