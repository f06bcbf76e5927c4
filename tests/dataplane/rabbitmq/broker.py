"""A RabbitMQ for the tests: Debian's package, on loopback, with its data in a folder of the test."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pika

from rota.machine import free_port, is_listening
from tests.waiting import LONG, wait_until

PROGRAMS = Path("/usr/lib/rabbitmq/bin")


class Broker:
    """A running broker on its own ports."""

    def __init__(self, folder: Path) -> None:
        assert PROGRAMS.exists(), "RabbitMQ is not installed. Type: make tools"
        self.folder, self.port, self.epmd, distribution = folder, free_port(), free_port(), free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2f"
        for name in ("rabbitmq.conf", "env.conf"):
            (folder / name).touch()
        (folder / "plugins").write_text("[].")
        self.environ = {
            **os.environ,
            "HOME": str(folder),
            "RABBITMQ_NODENAME": "rota@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(self.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        """Start the broker, and wait until it answers. After a kill it still has the confirmed messages."""
        with (self.folder / "out").open("ab") as out:
            process = subprocess.Popen(
                [str(PROGRAMS / "rabbitmq-server")], env=self.environ, stdout=out, stderr=out, start_new_session=True
            )
        self.process = process
        wait_until(self.answers)
        return process

    def kill(self) -> None:
        """Kill the broker with -9, and wait until nothing answers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LONG)
        wait_until(lambda: not self.answers())

    def answers(self) -> bool:
        """Whether the broker accepts connections."""
        return is_listening(self.port)

    def stop(self) -> None:
        """Stop it, and the name server that it started."""
        self.process.terminate()
        self.process.wait(LONG)
        subprocess.run([shutil.which("epmd") or "epmd", "-kill"], env=self.environ, check=False, capture_output=True)

    def connect(self) -> pika.BlockingConnection:
        """A connection that shares no code with rota."""
        return pika.BlockingConnection(pika.URLParameters(self.url))

    def take_all(self, queue: str) -> list[tuple[dict[str, object], bytes]]:
        """Return headers and body of every message in the queue, and empty it."""
        found = []
        with self.connect() as connection:
            channel = connection.channel()
            ready = channel.queue_declare(queue, passive=True).method.message_count
            for method, properties, body in channel.consume(queue, inactivity_timeout=60) if ready else ():
                assert method, f"{len(found)} of {ready} came"
                found.append((properties.headers or {}, body))
                if len(found) == ready:
                    channel.basic_ack(method.delivery_tag, multiple=True)
                    break
            channel.cancel()
        return found
