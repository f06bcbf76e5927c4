"""A broker that wants TLS and a login (SCRAM): settings pass through to every consumer, and no secret is shown."""

import logging
import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rota.errors import ConfigError, EnvironmentFailed
from rota.run.consume import CommittedBatch
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.topics import TEXT, number, read
from tests.dataplane.world import World

WORD = "correct-horse-battery"
MORE = """, client={{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "reader",
    "sasl.password": "${{KAFKA_WORD}}", "ssl.ca.location": {ca!r}}}"""


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """The certificate of localhost, which signed itself, and a store of it with its key."""
    ca, key, store = folder / "ca.pem", folder / "key.pem", folder / "broker.p12"
    for command in (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {key} -out {ca}",
        f"openssl pkcs12 -export -in {ca} -inkey {key} -out {store} -passout pass:storeword",
    ):
        subprocess.run(command.split(), check=True, capture_output=True)
    return ca, store


def test_records_are_read_over_tls_after_a_login_and_no_secret_is_shown(
    tmp_path: Path,
    endpoint: str,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    folder = tmp_path / "broker"
    folder.mkdir()
    ca, store = make_certificate(folder)
    jaas = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": jaas,
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": "storeword",
    }
    user = ("--add-scram", f"SCRAM-SHA-512=[name=reader,password={WORD}]")
    broker = Broker(folder, settings, user, "SASL_SSL")
    try:
        broker.make("orders", 2)
        broker.produce("orders", 0, number(5))
        monkeypatch.setenv("KAFKA_WORD", WORD)
        text = TEXT.format(
            servers=broker.secured_servers, topic="orders", schema="n int", more=MORE.format(ca=str(ca)), transform=""
        )
        world = World(tmp_path, endpoint, text, spark=spark)
        world.give("0", "1")
        (done,) = (e for e in world.run("0", "1") if isinstance(e, CommittedBatch))
        assert done.rows == 5
        assert [n for (n,) in read(world, "n")] == [0, 1, 2, 3, 4]
        monkeypatch.setenv("KAFKA_WORD", "wrong-horse-battery")
        with pytest.raises(EnvironmentFailed, match="Kafka at localhost") as caught:
            world.ports.source.list_keys()
        monkeypatch.delenv("KAFKA_WORD")
        with pytest.raises(ConfigError, match="KAFKA_WORD"):
            world.run("0")
        shown = f"{caught.value}{world.pipeline!r}{caplog.text}"
        assert WORD not in shown
        assert "wrong-horse" not in shown
    finally:
        broker.stop()
