"""An operator protects open nodes. A process that could not read, or set the rights of, its nodes creates none."""

import pytest
from kazoo.client import KazooClient
from kazoo.security import ACL, Id

from rota.coordination.access import BITS
from rota.coordination.client import ZooKeeperStore
from rota.coordination.group_state import GroupState
from rota.coordination.protect import exposed, protect
from rota.coordination.store import Check
from rota.errors import ConfigError, Forbidden
from tests.conformance.access.connections import misname, open_store
from tests.guarded import ROLES, Guarded

pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


def test_open_nodes_are_reported_and_an_operator_protects_them(guarded: Guarded, fresh: None, group: str) -> None:
    """The credentials came later, then a password changed: `rota check` names identities with too many or too few rights."""
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        GroupState(store, group).found()
    with open_store(guarded.environment("digest", "person")) as person:
        wrong = exposed(person)
        assert {"world:anyone has rwcda and should not", "worker (digest:worker) lacks r"} <= set(wrong)
        assert f"/rota/{group}/meta" in wrong["world:anyone has rwcda and should not"]
        assert protect(person) > 15
        assert not exposed(person)
    with open_store(guarded.environment("digest", "reader")) as reader:
        assert not exposed(reader), "also where ZooKeeper hides the hashes"
        with pytest.raises(Forbidden, match="right c on /rota is of a controller or person"):
            protect(reader)
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        with pytest.raises(Forbidden):
            GroupState(store, group).meta()
        with pytest.raises(ConfigError, match="ROTA_ZOOKEEPER_ACL is not set"):
            protect(store)


@pytest.mark.parametrize("scheme", ["sasl", "x509"])
def test_an_identity_without_the_role_in_the_new_rights_does_not_set_them(
    guarded: Guarded, fresh: None, group: str, scheme: str
) -> None:
    """One wrong name in ROTA_ZOOKEEPER_ACL: /rota was locked first, and no identity could change anything any more."""
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as store:
        GroupState(store, group).found()
    wrong = dict(guarded.environment(scheme, "person")) | {"ROTA_ZOOKEEPER_ACL": misname(scheme, "person")}
    with open_store(wrong) as person:
        with pytest.raises(ConfigError, match=r"Nothing was changed\. Mend ROTA_ZOOKEEPER_ACL"):
            protect(person)
        assert person.children("/rota") == (group,)
    with open_store(guarded.environment(scheme, "person")) as person:
        assert protect(person) > 15
        assert not exposed(person)


@pytest.mark.parametrize(("checked", "made"), [(True, False), (False, True)])
def test_a_process_that_could_not_read_its_nodes_creates_none(
    guarded: Guarded, fresh: None, group: str, checked: bool, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first start with every name in ROTA_ZOOKEEPER_ACL wrong. Without the check no identity may use /rota."""
    if not checked:
        whole = ZooKeeperStore.multi
        monkeypatch.setattr(
            ZooKeeperStore, "multi", lambda s, ops: whole(s, [op for op in ops if not isinstance(op, Check)])
        )
    wrong = dict(guarded.environment("sasl", "controller")) | {"ROTA_ZOOKEEPER_ACL": misname("sasl", *ROLES)}
    with open_store(wrong) as store, pytest.raises(Forbidden, match="does not let sasl:controller c"):
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


def test_a_locked_root_is_reported_and_a_node_that_its_administrator_creates_is_enough(
    guarded: Guarded, fresh: None, group: str
) -> None:
    keeper = KazooClient(guarded.server.hosts)
    keeper.start()
    keeper.set_acls("/", [ACL(BITS["r"] | BITS["a"], Id("world", "anyone"))])
    try:
        with open_store(guarded.environment("sasl", "person")) as store:
            tree = GroupState(store, group)
            with pytest.raises(Forbidden, match="right c on / belongs to its administrator"):
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
