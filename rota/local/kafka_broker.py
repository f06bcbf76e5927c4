"""A Kafka broker on loopback, with its data in a folder: for `rota demo --source kafka`, tests and benchmarks.

The first broker of a cluster is also its controller; the others get its address. A broker ends with this process.
"""

import os
import signal
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from rota.errors import ConfigError, EnvironmentFailed
from rota.java import LIGHT, find_java
from rota.local.child import Child
from rota.machine import free_port

JARS = Path(sys.prefix, "share", "rota", "kafka")
STARTING = 240.0  # seconds until it answers
SETTINGS = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}


class KafkaBroker:
    """A running broker on free ports. A subclass may have other `settings`.

    Args:
        folder: data, settings and log. A new broker over the folder of an older one has its topics.
        more: settings beside those of the class.
        formatted: arguments of the storage tool, such as the users that may log in.
        secured: the protocol of a second listener, at `secured_servers`.
        first: the first broker of its cluster, if that is another one.
        node: its number in the cluster.
    """

    settings = SETTINGS

    def __init__(
        self,
        folder: Path,
        more: Mapping[str, str] | None = None,
        formatted: Sequence[str] = (),
        secured: str = "",
        first: "Self | None" = None,
        node: int = 1,
    ) -> None:
        if not any(JARS.glob("kafka_2.13-*.jar")):
            raise ConfigError("Kafka is not installed. Type: make tools")
        self.folder, self.node = folder, node
        folder.mkdir(parents=True, exist_ok=True)
        ports = set[int]()
        while len(ports) < 3:  # the system may choose one port twice
            ports.add(free_port())
        port, other, control = ports
        self.servers, self.secured_servers = f"127.0.0.1:{port}", f"localhost:{other}"
        self.cluster: str = first.cluster if first else _read_cluster(folder) or _name_cluster()
        self.controller: str = first.controller if first else f"127.0.0.1:{control}"
        plain = f"PLAINTEXT://{self.servers}" + (f",{secured}://{self.secured_servers}" if secured else "")
        settings = {
            **self.settings,
            "process.roles": "broker" if first else "broker,controller",
            "node.id": str(node),
            "log.dirs": str(folder / "data"),
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": plain if first else f"{plain},CONTROLLER://{self.controller}",
            "advertised.listeners": plain,
            **(more or {}),
        }
        self.file = folder / "server.properties"
        self.file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        cluster = f"--cluster-id={self.cluster}"  # one word: an id may begin with a dash
        done = subprocess.run(
            [*_java(), "kafka.tools.StorageTool", "format", "--ignore-formatted", cluster, "-c", str(self.file), *formatted],
            capture_output=True, text=True, timeout=STARTING, check=False,
        )  # fmt: skip
        if done.returncode:
            raise EnvironmentFailed(f"Kafka's folder {folder} cannot be made: {done.stdout}{done.stderr}. See its disk")
        self.start()

    def start(self) -> None:
        """Start the broker with the data of its folder, and wait until it answers. It ends with this process."""
        from confluent_kafka.admin import AdminClient

        command = [*_java(), "kafka.Kafka", str(self.file)]
        self.process = Child("kafka", command, self.folder / "log", os.environ, signal.SIGTERM)
        self.admin: Any = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        until = time.monotonic() + STARTING
        while not self.answers():
            if time.monotonic() > until:
                raise EnvironmentFailed(f"Kafka did not answer within {STARTING:g} s. See {self.folder / 'log'}")

    def answers(self) -> bool:
        """Return whether the broker lists its topics, and the cluster lists the broker."""
        from confluent_kafka import KafkaException

        if not self.process.running:
            raise EnvironmentFailed(f"Kafka ended: {self.process.read_log_end(20)}. See {self.folder / 'log'}")
        try:
            return self.node in self.admin.list_topics(timeout=1).brokers
        except KafkaException:
            return False

    def make(self, topic: str, partitions: int = 1, replicas: int = 1, **settings: str) -> None:
        """Make a topic with this many partitions."""
        from confluent_kafka.admin import NewTopic

        config = {name.replace("_", "."): value for name, value in settings.items()}
        self.admin.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic].result(STARTING)
        until = time.monotonic() + STARTING
        while len(self.admin.list_topics(topic, 5).topics[topic].partitions) != partitions:
            if time.monotonic() > until:
                raise EnvironmentFailed(f"Kafka did not make {topic} within {STARTING:g} s. See {self.folder / 'log'}")
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL to the broker."""
        self.process.signal_group(signal.SIGKILL)
        self.process.process.wait(STARTING)

    def stop(self) -> None:
        """End the broker in order."""
        self.process.end(5)


def _name_cluster() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _read_cluster(folder: Path) -> str:
    """Return the id of the cluster whose data is in the folder; empty for a new folder."""
    file = folder / "data" / "meta.properties"
    lines = file.read_text().splitlines() if file.exists() else []
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), "")


def _java() -> list[str]:
    return [str(find_java()), "-Xmx384m", *LIGHT, "-cp", f"{JARS}/*"]
