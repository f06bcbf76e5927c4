"""Each role may do its own work and no other's."""

import re

import pytest

from rota.cli.meter import GroupMeter
from rota.coordination import membership, overrides, parking, repair
from rota.coordination.access import RIGHTS, Access, rights
from rota.coordination.client import ZooKeeperStore
from rota.coordination.group_state import GroupState
from rota.coordination.layout import Paths
from rota.coordination.protect import exposed
from rota.coordination.records import Live
from rota.coordination.store import Create, Delete, Set
from rota.errors import Forbidden
from rota.group.rebalance import rebalance
from rota.settings import Settings
from tests.claiming import claim_one, release_one
from tests.conformance.access.connections import ROOT, open_store
from tests.guarded import ROLES, Guarded, acl

pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


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
        claim_one(worker, incarnation, partition, seen.version, target.version)
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
    assert GroupMeter(reader).measure().seen.facts.partitions == ("p:a", "p:b"), "what `rota export` reads"
    for partition, seen in worker.owned().items():
        release_one(worker, incarnation, partition, seen.version, assign_version=target.version)
    membership.leave(worker, incarnation)
    overrides.resume(person)
    rebalance(controller, "r3")
    assert not exposed(stores["reader"]), "every node that was made has the rights that it should have"


def test_no_role_can_do_what_is_anothers(stores: dict[str, ZooKeeperStore], group: str) -> None:
    """Every right that the table does not give, tried on every record: the error names node, right and the roles with it."""
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


def test_without_credentials_nothing_can_be_read(
    guarded: Guarded, stores: dict[str, ZooKeeperStore], group: str, scheme: str
) -> None:
    GroupState(stores["controller"], group).found()
    other = "sasl" if scheme != "sasl" else "digest"
    stranger = dict(guarded.environment(other, "worker")) | {"ROTA_ZOOKEEPER_ACL": acl(scheme)}
    with open_store(stranger) as store:
        for look in (lambda: store.get(Paths(group).meta), lambda: store.children(Paths(group).lives)):
            with pytest.raises(Forbidden, match="right r on /rota"):
                look()
        with pytest.raises(Forbidden, match="right r on /rota"):
            store.watch(Paths(group).head, lambda: None)
        with pytest.raises(Forbidden, match="right w on /rota"):
            store.set(Paths(group).meta, b"{}", -1)


def test_without_the_rights_of_the_folders_a_guarded_record_can_be_removed(
    guarded: Guarded, fresh: None, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ablation: the ACLs of the records alone. In ZooKeeper the rights of a folder decide about removals in it."""
    whole = Access.acl
    folders = {Paths(group).root, *Paths(group).folders, "/rota"}
    monkeypatch.setattr(
        Access, "acl", lambda self, path: {("world", "anyone"): 31} if path in folders else whole(self, path)
    )
    with open_store(guarded.environment("sasl", "controller")) as controller:
        GroupState(controller, group).found()
    removed = []
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as stranger:
        for path in (Paths(group).meta, Paths(group).head, Paths(group).overrides):
            stranger.delete(path)
            removed.append(path)
    assert len(removed) == 3


def test_one_identity_may_have_all_roles() -> None:
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
