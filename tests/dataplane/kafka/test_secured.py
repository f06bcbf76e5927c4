"""A broker that requires TLS, a login (SCRAM) and rights: every consumer gets the settings, and no secret is shown. If
the broker refuses, no partition is parked; once the login or the right is valid again, runs continue."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from pyspark.sql import SparkSession

from rota.dataplane.kafka import reading
from rota.dataplane.kafka import topic as looking
from rota.errors import ConfigError, EnvironmentFailed
from rota.run.consume import CommittedBatch, IdlePartition
from rota.run.serve import Rest, RunLimits, serve
from tests.dataplane.kafka.broker import Broker
from tests.dataplane.kafka.certificate import make_certificate
from tests.dataplane.kafka.topics import TEXT, UNHURT, catch_up, commit, count_damage, number
from tests.dataplane.world import World
from tests.waiting import LONG, wait_until

WORD, OTHER = "correct-horse-battery", "another-horse-battery"
MORE = """, client={{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "reader",
    "sasl.password": "${{KAFKA_WORD}}", "ssl.ca.location": {ca!r}}}"""
SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "ssl.keystore.type": "PKCS12",
    "ssl.keystore.password": "storeword",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",  # of the listener without a login, which the tests use
}


@dataclass(frozen=True)
class Secured:
    """The broker and its certificate. The user `reader` has a password, and no right until `grant`."""

    broker: Broker
    ca: Path

    def declare(self, topic: str) -> str:
        """Return the rest of a pipeline file over the topic."""
        more = MORE.format(ca=str(self.ca))
        return TEXT.format(servers=self.broker.secured_servers, topic=topic, schema="n int", more=more, transform=None)

    def set_password(self, word: str) -> None:
        """Give the user this password."""
        made = UserScramCredentialUpsertion(
            "reader", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), word.encode()
        )
        self.broker.admin.alter_user_scram_credentials([made])["reader"].result(LONG)

    def grant(self, topic: str, *rights: AclOperation) -> None:
        """Give the user exactly these rights to the topic."""
        place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
        rest = "*", AclOperation.ANY, AclPermissionType.ANY
        for one in self.broker.admin.delete_acls([AclBindingFilter(*place, "User:reader", *rest)]).values():
            one.result(LONG)
        made = [AclBinding(*place, "User:reader", "*", right, AclPermissionType.ALLOW) for right in rights]
        for one in self.broker.admin.create_acls(made).values() if made else ():
            one.result(LONG)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    ca, store = make_certificate(folder)
    user = ("--add-scram", f"SCRAM-SHA-512=[name=reader,password={WORD}]")
    broker = Broker(folder, {**SETTINGS, "ssl.keystore.location": str(store)}, user, "SASL_SSL")
    yield Secured(broker, ca)
    broker.stop()


@pytest.fixture
def world(
    tmp_path: Path, endpoint: str, spark: SparkSession, secured: Secured, topic: str, monkeypatch: pytest.MonkeyPatch
) -> World:
    """A world with two partitions, of which a run has consumed five records."""
    monkeypatch.setattr(looking, "PATIENCE", 3.0)
    monkeypatch.setattr(reading, "SILENCE", 3.0)
    monkeypatch.setenv("KAFKA_WORD", WORD)
    secured.set_password(WORD)
    secured.broker.make(topic, 2)
    secured.grant(topic, AclOperation.DESCRIBE, AclOperation.READ)
    secured.broker.produce(topic, 0, number(5))
    world = World(tmp_path, endpoint, secured.declare(topic), spark=spark)
    world.give("0", "1")
    wait_until(lambda: catch_up(world, "0", "1"))  # a right takes effect a moment after it was granted
    return world


def test_no_secret_is_shown(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert count_damage(world, {"p:0": [0, 1, 2, 3, 4], "p:1": []}) == UNHURT
    monkeypatch.setenv("KAFKA_WORD", "wrong-horse-battery")
    with pytest.raises(EnvironmentFailed, match=r"Kafka at localhost.* authentication failed") as caught:
        world.ports.source.list_keys()
    monkeypatch.delenv("KAFKA_WORD")
    with pytest.raises(ConfigError, match="KAFKA_WORD"):
        world.run("0")
    shown = f"{caught.value}{world.pipeline!r}{caplog.text}"
    assert WORD not in shown
    assert "wrong-horse" not in shown


@pytest.mark.parametrize("cut", [False, True], ids=["connected", "connections cut"])
def test_a_password_that_changes_while_a_run_serves_ends_it_and_the_next_run_reads_the_new_one(
    world: World, secured: Secured, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: bool
) -> None:
    """Kafka keeps a connection open whose password was changed: then the run's own client still gets answers."""
    file = tmp_path / "word"
    file.write_text(f"{WORD}\n")
    monkeypatch.delenv("KAFKA_WORD")
    monkeypatch.setenv("KAFKA_WORD_FILE", str(file))
    secured.broker.produce(topic, 1, number(5))
    events = serve(
        world.tree, world.pipeline, world.incarnation, ["p:0", "p:1"], "serving", world.ports, RunLimits(300, 300)
    )
    while not isinstance(event := next(events), Rest):
        assert isinstance(event, CommittedBatch | IdlePartition)
    secured.set_password(OTHER)
    secured.broker.produce(topic, 1, number(5, 5))
    if cut:
        secured.broker.stop()
        secured.broker.start()
    with pytest.raises(EnvironmentFailed, match="authentication failed") as caught:
        list(events)
    assert str(caught.value).endswith(f"Write the valid value into {file}: the next run reads it. It is tried again")
    assert not world.tree.parked()
    file.write_text(OTHER)
    commit(world, "1")
    assert count_damage(world, {"p:0": list(range(5)), "p:1": list(range(10))}) == UNHURT


def test_a_client_whose_login_was_refused_does_not_try_again_in_the_background(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_threads() -> int:
        return sum(one.read_text().startswith("rdk:") for one in Path("/proc/self/task").glob("*/comm"))

    before = count_threads()
    monkeypatch.setenv("KAFKA_WORD", OTHER)
    with pytest.raises(EnvironmentFailed, match="Set KAFKA_WORD for Dagster's code server and its runs, and restart"):
        world.ports.source.list_keys()
    wait_until(lambda: count_threads() < before)  # the former valid login was replaced, too


@pytest.mark.parametrize("left", [(), (AclOperation.DESCRIBE,)], ids=["no right", "without Read"])
def test_a_right_that_is_revoked_parks_nothing_and_runs_continue_once_it_is_granted_again(
    world: World, secured: Secured, topic: str, left: tuple[AclOperation, ...]
) -> None:
    secured.grant(topic, *left)
    secured.broker.produce(topic, 0, number(5, 5))
    line = (
        r"access is denied \(.*Topic authorization failed\)\. Grant this user the rights Describe and Read to the topic"
    )
    with pytest.raises(EnvironmentFailed, match=line):
        wait_until(lambda: not world.run("0", "1"))  # a right is lost a moment after it was revoked
    assert not world.tree.parked()
    secured.grant(topic, AclOperation.DESCRIBE, AclOperation.READ)
    wait_until(lambda: catch_up(world, "0", "1"))
    assert not world.tree.parked()
    assert count_damage(world, {"p:0": list(range(10)), "p:1": []}) == UNHURT
