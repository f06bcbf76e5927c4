"""Who may: a real ZooKeeper with passwords and certificates; each role does its job and nobody else's."""

import gc
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from rota.coordination import client, membership, overrides, ownership, parking, repair
from rota.coordination.access import BITS, RIGHTS, Access, rights
from rota.coordination.client import ZooKeeperStore
from rota.coordination.group_state import GroupState
from rota.coordination.layout import Paths
from rota.coordination.protect import exposed, protect
from rota.coordination.records import Live
from rota.coordination.store import Check, Create, Delete, Set
from rota.errors import ConfigError, Conflict, Forbidden, RotaError, Unavailable
from rota.rebalance import rebalance
from rota.settings import Settings
from tests.guarded import ROLES, Authority, Guarded, acl, jaas, password, served
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SCHEMES = ("digest", "sasl", "x509")
pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """kazoo leaves the sockets of handshakes that failed to the garbage collector: it comes here, and not elsewhere."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    pki = Authority(folder)
    for name in ("server", *ROLES):
        pki.sign(name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={jaas(folder)}")
        server, secure = served(folder / "data", pki)
        server.start()
    yield Guarded(server, secure, pki)
    server.stop()


@pytest.fixture(params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def persons(guarded: Guarded) -> Iterator[list[ZooKeeperStore]]:
    """By who is in any ACL."""
    stores = [opened(guarded.environment(scheme, "person")) for scheme in SCHEMES]
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def fresh(persons: list[ZooKeeperStore]) -> None:
    """The tree is empty: whoever made it last, it is made by this test."""
    for path in reversed(everything(persons, "/rota")):
        for store in persons:
            with suppress(Forbidden, Conflict):
                store.delete(path)
    assert persons[0].get("/rota") is None


def everything(persons: Sequence[ZooKeeperStore], path: str) -> list[str]:
    for store in persons:
        with suppress(Forbidden):
            if store.get(path) is None:
                return []
            names = store.children(path)
            return [path, *(one for name in names for one in everything(persons, f"{path}/{name}"))]
    return [path]


def opened(environ: Mapping[str, str]) -> ZooKeeperStore:
    return client.opened(Settings.from_environment(environ))


@pytest.fixture
def stores(guarded: Guarded, scheme: str, fresh: None) -> Iterator[dict[str, ZooKeeperStore]]:
    """A connection of each role."""
    made = {role: opened(guarded.environment(scheme, role)) for role in ROLES}
    yield made
    for store in made.values():
        store.close()


def test_each_role_can_do_its_job(stores: dict[str, ZooKeeperStore], group: str) -> None:
    worker, controller, person, reader = (GroupState(stores[role], group) for role in ROLES)
    controller.found()
    controller.grow("p", ["a", "b"])
    incarnation = membership.join(worker, "w1", Live())
    rebalance(controller, "r1")
    target = worker.target("w1")
    assert target is not None
    assert target.partitions == {"p:a", "p:b"}
    for partition, seen in worker.owned().items():
        ownership.claim(worker, incarnation, partition, seen.version, target.version)
    run = membership.register_run(controller, "r2", incarnation, ["p:a"])
    parking.park(controller, "p:a", "bad")
    membership.end_run(controller, run)
    membership.announce(worker, incarnation, Live(leaving=True))
    overrides.cordon(person, "w1")
    overrides.pause(person)
    assert parking.unpark(person, "p:a")
    assert not repair.find_unreadable(reader)
    assert set(reader.ids()) == {"p:a", "p:b"}
    assert reader.store.now() > 0
    for partition, seen in worker.owned().items():
        ownership.release(worker, incarnation, partition, seen.version, assign_version=target.version)
    membership.leave(worker, incarnation)
    overrides.resume(person)
    rebalance(controller, "r3")
    assert not exposed(stores["reader"]), "every node that was made has the rights that it should have"


def test_no_role_can_do_what_is_anothers(stores: dict[str, ZooKeeperStore], group: str) -> None:
    """Every right that the table does not give, tried on every record: a line that names node, right and who has it."""
    controller = GroupState(stores["controller"], group)
    controller.found()
    controller.grow("p", ["a"])
    membership.join(GroupState(stores["worker"], group), "w1", Live())
    rebalance(controller, "r1")
    overrides.cordon(GroupState(stores["person"], group), "w1")
    person, root, tried = stores["person"], Paths(group).root, 0
    for row in RIGHTS:
        record = (
            f"{root}/{row}"
            if not row.endswith("/")
            else next((f"{root}/{row}{name}" for name in person.children(f"{root}/{row.rstrip('/')}")), None)
        )
        beside = f"{root}/{row}foreign" if row.endswith("/") else f"{root}/foreign"
        for role in ("worker", "controller", "reader"):
            has = (
                RIGHTS[row].get(role, "")
                if row.endswith("/")
                else rights(root).get(role, "") + RIGHTS[row].get(role, "")
            )
            ops = {"c": Create(beside), "w": record and Set(record, b"", -1), "d": record and Delete(record)}
            for letter, op in ops.items():
                if letter in has or op is None or (letter == "w" and letter in rights(op.path).get(role, "")):
                    continue
                with pytest.raises(Forbidden) as caught:
                    stores[role].multi([op])
                tried += 1
                node = op.path if letter == "w" else op.path.rpartition("/")[0]
                assert f"right {letter} on {node} is of " in str(caught.value)
                assert "person" in str(caught.value).partition(" is of ")[2]
                assert "s3cret" not in str(caught.value)
    assert tried > 60
    for path in (root, f"{root}/own", "/rota"):
        with pytest.raises(Forbidden):
            stores["reader"].create(f"{path}/x")


def test_who_has_no_credentials_reads_nothing(
    guarded: Guarded, stores: dict[str, ZooKeeperStore], group: str, scheme: str
) -> None:
    GroupState(stores["controller"], group).found()
    other = "sasl" if scheme != "sasl" else "digest"
    stranger = dict(guarded.environment(other, "worker")) | {"ROTA_ZOOKEEPER_ACL": acl(scheme)}
    with opened(stranger) as store:
        for look in (lambda: store.get(Paths(group).meta), lambda: store.children(Paths(group).lives)):
            with pytest.raises(Forbidden, match="right r on /rota"):
                look()
        with pytest.raises(Forbidden, match="right r on /rota"):
            store.watch(Paths(group).head, lambda: None)
        with pytest.raises(Forbidden, match="right w on /rota"):
            store.set(Paths(group).meta, b"{}", -1)


def test_open_nodes_of_before_are_told_and_a_person_protects_them(guarded: Guarded, fresh: None, group: str) -> None:
    """The credentials came later, then a password changed: `rota check` names who may too much or too little."""
    with opened({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        GroupState(store, group).found()
    with opened(guarded.environment("digest", "person")) as person:
        wrong = exposed(person)
        assert {"world:anyone has rwcda and should not", "worker (digest:worker) lacks r"} <= set(wrong)
        assert f"/rota/{group}/meta" in wrong["world:anyone has rwcda and should not"]
        assert protect(person) > 15
        assert not exposed(person)
    with opened(guarded.environment("digest", "reader")) as reader:
        assert not exposed(reader), "also where ZooKeeper hides the hashes"
        with pytest.raises(Forbidden, match="right c on /rota is of a controller or person"):
            protect(reader)
    with opened({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        with pytest.raises(Forbidden):
            GroupState(store, group).meta()
        with pytest.raises(ConfigError, match="ROTA_ZOOKEEPER_ACL is not set"):
            protect(store)


def misnamed(scheme: str, *roles: str) -> str:
    """ROTA_ZOOKEEPER_ACL in which these roles are somebody else's."""
    named = dict(entry.split("=", 1) for entry in acl(scheme).split(";"))
    return ";".join(f"{role}={f'{scheme}:CN=not-me' if role in roles else who}" for role, who in named.items())


@pytest.mark.parametrize("scheme", ["sasl", "x509"])
def test_who_is_no_person_by_the_new_rights_does_not_set_them(
    guarded: Guarded, fresh: None, group: str, scheme: str
) -> None:
    """One wrong name in ROTA_ZOOKEEPER_ACL: /rota was locked first, and nobody could set or remove anything any more."""
    with opened({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        GroupState(store, group).found()
    wrong = dict(guarded.environment(scheme, "person")) | {"ROTA_ZOOKEEPER_ACL": misnamed(scheme, "person")}
    with opened(wrong) as person:
        with pytest.raises(ConfigError, match=r"Nothing was changed\. Mend ROTA_ZOOKEEPER_ACL"):
            protect(person)
        assert person.children("/rota") == (group,)
    with opened(guarded.environment(scheme, "person")) as person:
        assert protect(person) > 15
        assert not exposed(person)


@pytest.mark.parametrize(("checked", "made"), [(True, False), (False, True)])
def test_who_could_not_read_what_it_makes_makes_nothing(
    guarded: Guarded, fresh: None, group: str, checked: bool, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start with every name in ROTA_ZOOKEEPER_ACL wrong. The ablation: unchecked, /rota is there and nobody's."""
    if not checked:
        whole = ZooKeeperStore.multi
        monkeypatch.setattr(
            ZooKeeperStore, "multi", lambda s, ops: whole(s, [op for op in ops if not isinstance(op, Check)])
        )
    wrong = dict(guarded.environment("sasl", "controller")) | {"ROTA_ZOOKEEPER_ACL": misnamed("sasl", *ROLES)}
    with opened(wrong) as store, pytest.raises(Forbidden, match="does not let sasl:controller c"):
        GroupState(store, group).found()
    keeper = KazooClient(guarded.server.hosts)
    keeper.start()
    try:
        assert ("rota" in keeper.get_children("/")) == made
        if made:
            keeper.delete("/rota")  # only because / is open
    finally:
        keeper.stop()
        keeper.close()


def test_a_password_that_is_refused_is_not_tried_at_once_again(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker whose password was changed asked 20 times a second, and so did each other."""
    built: list[float] = []
    build = ZooKeeperStore._build

    def counted(store: ZooKeeperStore) -> object:
        built.append(time.monotonic())
        return build(store)

    monkeypatch.setattr(ZooKeeperStore, "_build", counted)
    settings = Settings.from_environment(
        dict(guarded.environment("sasl", "reader")) | {"ROTA_ZOOKEEPER_AUTH": "sasl:reader:wrong-password"}
    )
    with ZooKeeperStore(settings.zookeeper, 4.0, access=Access.of(settings)):
        wait_until(lambda: len(built) >= 3, 30)
    assert built[2] - built[1] >= client.REFUSED
    assert built[1] - built[0] >= client.REFUSED


def test_a_root_that_is_locked_is_told_and_what_its_keeper_makes_is_enough(
    guarded: Guarded, fresh: None, group: str
) -> None:
    keeper = KazooClient(guarded.server.hosts)
    keeper.start()
    keeper.set_acls("/", [ACL(BITS["r"] | BITS["a"], Id("world", "anyone"))])
    try:
        with opened(guarded.environment("sasl", "person")) as store:
            tree = GroupState(store, group)
            with pytest.raises(Forbidden, match="right c on / is of whoever runs it"):
                tree.found()
            keeper.set_acls("/", [ACL(BITS["r"] | BITS["a"] | BITS["c"], Id("world", "anyone"))])
            keeper.create("/rota")
            keeper.set_acls("/", [ACL(BITS["r"] | BITS["a"], Id("world", "anyone"))])
            tree.found()
            protect(store)
            assert not exposed(store)
    finally:
        keeper.set_acls("/", [ACL(sum(BITS.values()), Id("world", "anyone"))])
        keeper.stop()
        keeper.close()


def test_without_the_rights_of_the_folders_a_guarded_record_can_be_removed(
    guarded: Guarded, fresh: None, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: the ACLs of the records alone. ZooKeeper asks the folder who may remove what is in it."""
    whole = Access.acl
    folders = {Paths(group).root, *Paths(group).folders, "/rota"}
    monkeypatch.setattr(
        Access, "acl", lambda self, path: {("world", "anyone"): 31} if path in folders else whole(self, path)
    )
    with opened(guarded.environment("sasl", "controller")) as controller:
        GroupState(controller, group).found()
    removed = []
    with opened({"ROTA_ZOOKEEPER": guarded.server.hosts}) as stranger:
        for path in (Paths(group).meta, Paths(group).head, Paths(group).overrides):
            stranger.delete(path)
            removed.append(path)
    assert len(removed) == 3


def test_a_worker_waits_for_who_founds_its_group(guarded: Guarded, fresh: None, group: str) -> None:
    worker = started(guarded.environment("sasl", "worker"), "worker", "--group", group, "--id", "w1", "--no-spark")
    try:
        assert worker.stderr is not None
        assert "event=no-group" in (said := worker.stderr.readline())
        assert "Its membership sensor founds it" in said
        with opened(guarded.environment("sasl", "controller")) as store:
            GroupState(store, group).found()
            assert "event=joined" in worker.stderr.readline()
    finally:
        worker.terminate()
        worker.communicate()


def test_a_worker_joins_with_its_password_from_a_file(
    guarded: Guarded, fresh: None, group: str, tmp_path: Path
) -> None:
    """The process itself: it works, the others' passwords are refused in one line, and `ps` shows none."""
    with opened(guarded.environment("sasl", "controller")) as store:
        tree = GroupState(store, group)
        tree.found()
        environ = dict(guarded.environment("sasl", "worker"))
        file = tmp_path / "auth"
        file.write_text(environ.pop("ROTA_ZOOKEEPER_AUTH") + "\n")
        worker = started(
            environ | {"ROTA_ZOOKEEPER_AUTH_FILE": str(file)}, "worker", "--group", group, "--id", "w1", "--no-spark"
        )
        try:
            assert worker.stderr is not None
            assert "event=joined" in worker.stderr.readline()
            assert password("worker") not in Path(f"/proc/{worker.pid}/cmdline").read_text()
            assert [one.worker for one in tree.live()] == ["w1"]
        finally:
            worker.terminate()
            worker.communicate()
    done = ended(guarded.environment("sasl", "controller"), "worker", "--group", group, "--id", "w2", "--no-spark")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"does not let sasl:controller (controller) create /rota/{group}/live/w2@" in line
    assert f"right c on /rota/{group}/live is of a worker or person" in line


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
        locked = ["openssl", "ec", "-in", str(folder / "reader.key"), "-aes256", "-passout", "pass:long-password"]
        subprocess.run([*locked, "-out", str(folder / "locked.key")], check=True, capture_output=True)
    with opened(guarded.environment(scheme, "controller")) as store:
        GroupState(store, group).found()
    places = {"localhost": f"localhost:{port}", "plain": guarded.server.hosts, "secure": guarded.secure}
    change = {k: str(folder / v) if v.endswith((".pem", ".key")) else places.get(v, v) for k, v in change.items()}
    with pytest.raises(RotaError) as caught:
        joined(dict(guarded.environment(scheme, "reader")) | change, group)
    said = str(caught.value)
    assert line in said
    assert "\n" not in said
    assert "password" not in said.replace("the password of", "").replace("ROTA_ZOOKEEPER_KEY_PASSWORD", "")


def joined(environ: Mapping[str, str], group: str) -> None:
    """What a command does first, with less patience."""
    settings = Settings.from_environment(environ)
    with client.connect(settings.zookeeper, 4.0, connect_timeout=1.0, access=Access.of(settings)) as store:
        GroupState(store, group).meta()


def test_a_command_ends_in_that_line_and_check_says_it_too(guarded: Guarded) -> None:
    environ = dict(guarded.environment("sasl", "reader")) | {"ROTA_ZOOKEEPER_AUTH": "sasl:reader:wrong-password"}
    done = ended(environ, "check", "--json")
    assert done.returncode == 2
    assert "wrong-password" not in done.stdout + done.stderr
    (seen,) = [one["seen"] for one in json.loads(done.stdout)["probes"] if one["name"] == "ZooKeeper"]
    assert "it does not accept the password of sasl:reader" in seen


def test_an_expired_server_is_told_in_the_words_of_tls(guarded: Guarded, tmp_path: Path) -> None:
    guarded.pki.sign("stale", days=-1)
    server, secure = served(tmp_path, guarded.pki, "stale")
    with server, pytest.raises(Unavailable, match="certificate has expired"):
        joined(dict(guarded.environment("x509", "reader")) | {"ROTA_ZOOKEEPER": secure}, "g")


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"ROTA_ZOOKEEPER_AUTH": "digest:anna"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_AUTH": "kerberos:anna:longpassword"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_AUTH": "sasl:anna:longpass\nword"}, "ROTA_ZOOKEEPER_AUTH is not what it should be"),
        ({"ROTA_ZOOKEEPER_ACL": "worker=sasl:w"}, "names nobody as controller and person"),
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


def test_one_identity_may_be_everybody() -> None:
    text = "worker=sasl:rota;controller=sasl:rota;person=sasl:rota;reader=world:anyone"
    access = Access.of(Settings.from_environment({"ROTA_ZOOKEEPER_ACL": text}))
    assert dict(access.acl("/rota/g/meta")) == {("sasl", "rota"): 31, ("world", "anyone"): 1}


def test_the_table_of_rights_is_on_the_page_and_leaves_out_no_record() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text().partition("## ZooKeeper")[2].partition("\n## ")[0]
    table = dict(re.findall(r"^\| `(worker|controller|person|reader)` \|[^|]*\|(.*)\|$", page, re.M))
    assert set(table) == set(ROLES)
    for role in ("worker", "controller"):
        for cell, letter in zip(table[role].split("|"), "cdw", strict=True):
            assert set(re.findall(r"`([^`]+)`", cell)) == {row for row in RIGHTS if letter in RIGHTS[row].get(role, "")}
    records = re.findall(r"^\| `([a-z]+(?:/<)?)[^`]*` \| (?:persistent|ephemeral)", page, re.M)
    assert list(dict.fromkeys(name.rstrip("<") for name in records)) == list(RIGHTS)


def started(environ: Mapping[str, str], *words: str) -> "subprocess.Popen[str]":
    plain = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    return subprocess.Popen(
        [sys.executable, "-m", "rota", *words],
        env=plain | {"PYTHONPATH": str(ROOT)} | dict(environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def ended(environ: Mapping[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    process = started(environ, *words)
    out, error = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out, error)
