"""A wrong password, certificate or setting is one line, without the secret, and is not tried at once again."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rota.coordination import client
from rota.coordination.access import Access
from rota.coordination.client import ZooKeeperStore
from rota.coordination.group_state import GroupState
from rota.errors import ConfigError, RotaError, Unavailable
from rota.settings import Settings
from tests.conformance.access.connections import open_store, run_command
from tests.guarded import Authority, Guarded
from tests.waiting import LONG, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


def test_a_password_that_is_refused_is_not_tried_at_once_again(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose password was changed asked 20 times a second, and so did each other."""
    built: list[float] = []
    build = ZooKeeperStore.build_client

    def counted(store: ZooKeeperStore) -> object:
        built.append(time.monotonic())
        return build(store)

    monkeypatch.setattr(ZooKeeperStore, "build_client", counted)
    settings = Settings.from_environment(
        dict(guarded.environment("sasl", "reader")) | {"ROTA_ZOOKEEPER_AUTH": "sasl:reader:wrong-password"}
    )
    with ZooKeeperStore(settings.zookeeper, 4.0, access=Access.of(settings)):
        wait_until(lambda: len(built) >= 3)
    assert built[2] - built[1] >= client.REFUSED
    assert built[1] - built[0] >= client.REFUSED


@pytest.mark.parametrize(
    ("scheme", "change", "line"),
    [
        (
            "sasl",
            {"ROTA_ZOOKEEPER_AUTH": "sasl:reader:wrong-password"},
            "it does not accept the password of sasl:reader",
        ),
        ("digest", {"ROTA_ZOOKEEPER_AUTH": "digest:reader:wrong-password"}, "does not let digest:reader "),
        (
            "x509",
            {"ROTA_ZOOKEEPER_CA_FILE": "other.pem"},
            "the server's certificate is refused: unable to get local issuer",
        ),
        ("x509", {"ROTA_ZOOKEEPER": "localhost"}, "certificate is not valid for 'localhost'"),
        (
            "x509",
            {"ROTA_ZOOKEEPER_CERT_FILE": "", "ROTA_ZOOKEEPER_KEY_FILE": ""},
            "TLS: the server refuses our certificate (bad certificate): none,",
        ),
        (
            "x509",
            {"ROTA_ZOOKEEPER_CERT_FILE": "late.pem", "ROTA_ZOOKEEPER_KEY_FILE": "late.key"},
            "TLS: the server refuses our certificate (certificate unknown): none, expired",
        ),
        ("x509", {"ROTA_ZOOKEEPER_KEY_FILE": "server.key"}, "key values mismatch"),
        ("x509", {"ROTA_ZOOKEEPER_CERT_FILE": "nowhere.pem"}, "no such file"),
        ("x509", {"ROTA_ZOOKEEPER_KEY_FILE": "locked.key"}, "set ROTA_ZOOKEEPER_KEY_PASSWORD"),
        ("x509", {"ROTA_ZOOKEEPER": "plain"}, "is that its TLS port?"),
        ("sasl", {"ROTA_ZOOKEEPER": "secure"}, "if it speaks TLS, set ROTA_ZOOKEEPER_CA_FILE"),
    ],
)
def test_what_is_wrong_is_one_line(
    guarded: Guarded, fresh: None, scheme: str, change: dict[str, str], line: str, group: str
) -> None:
    folder, port = guarded.pki.folder, guarded.secure.rpartition(":")[2]
    if not (folder / "other.pem").exists():
        Authority(folder, "other")
        guarded.pki.sign("late", days=-1)
        guarded.pki.lock_key("reader", "long-password", to="locked")
    with open_store(guarded.environment(scheme, "controller")) as store:
        GroupState(store, group).found()
    places = {"localhost": f"localhost:{port}", "plain": guarded.server.hosts, "secure": guarded.secure}
    change = {k: str(folder / v) if v.endswith((".pem", ".key")) else places.get(v, v) for k, v in change.items()}
    with pytest.raises(RotaError) as caught:
        connect_briefly(dict(guarded.environment(scheme, "reader")) | change, group, 1.0 if scheme == "x509" else 8.0)
    said = str(caught.value)
    assert line in said
    assert "\n" not in said
    assert "password" not in said.replace("the password of", "").replace("ROTA_ZOOKEEPER_KEY_PASSWORD", "")


def connect_briefly(environ: Mapping[str, str], group: str, timeout: float = 1.0) -> None:
    """What a command does first, with less patience for a refusal, and more for a busy server that answers why."""
    settings = Settings.from_environment(environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Access.unmet, "__defaults__", (LONG,))
        with client.connect(settings.zookeeper, 4.0, connect_timeout=timeout, access=Access.of(settings)) as store:
            GroupState(store, group).meta()


def test_a_command_ends_in_that_line_and_check_reports_it_too(guarded: Guarded) -> None:
    environ = dict(guarded.environment("sasl", "reader")) | {"ROTA_ZOOKEEPER_AUTH": "sasl:reader:wrong-password"}
    done = run_command(environ, "check", "--json")
    assert done.returncode == 2
    assert "wrong-password" not in done.stdout + done.stderr
    (seen,) = [one["seen"] for one in json.loads(done.stdout)["probes"] if one["name"] == "ZooKeeper"]
    assert "it does not accept the password of sasl:reader" in seen


@contextmanager
def serve_tls(certificate: Path) -> Iterator[str]:
    """A server that sends this certificate and nothing more; its address."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):  # at the end the socket is closed
                while True:
                    link, _ = listening.accept()
                    with link, suppress(OSError):
                        context.wrap_socket(link, server_side=True).close()

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_an_expired_server_is_reported_in_the_words_of_tls(guarded: Guarded) -> None:
    """The handshake ends before any word of ZooKeeper."""
    with serve_tls(guarded.pki.sign("stale", days=-1)) as secure:
        with pytest.raises(Unavailable, match="certificate has expired"):
            connect_briefly(dict(guarded.environment("x509", "reader")) | {"ROTA_ZOOKEEPER": secure}, "g")


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"ROTA_ZOOKEEPER_AUTH": "digest:anna"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_AUTH": "kerberos:anna:longpassword"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_AUTH": "sasl:anna:longpass\nword"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_ACL": "worker=sasl:w"}, "has no identity for controller and person"),
        ({"ROTA_ZOOKEEPER_ACL": "boss=sasl:w"}, "'boss' is not like ROLE=SCHEME:ID"),
        ({"ROTA_ZOOKEEPER_ACL": "worker=digest:w:longpassword"}, "the digest of role worker is not USER:HASH"),
        ({"ROTA_ZOOKEEPER_KEY_FILE": "/x.key"}, "without ROTA_ZOOKEEPER_CERT_FILE"),
        ({"ROTA_ZOOKEEPER_AUTH_FILE": "/nowhere"}, "ROTA_ZOOKEEPER_AUTH_FILE='/nowhere' cannot be read"),
        ({"ROTA_SPARK_TOKEN_FILE": "/x", "ROTA_SPARK_TOKEN": "longtoken"}, "are both set"),
    ],
)
def test_a_bad_setting_is_one_line_without_the_secret(environ: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Access.of(Settings.from_environment(environ))
    assert line in str(caught.value)
    assert "longpass" not in str(caught.value)
    assert "\n" not in str(caught.value)
