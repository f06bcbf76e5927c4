"""Rights below a chroot: its nodes get the rights of `/rota`, and an error names the whole path."""

import uuid

import pytest
from kazoo.security import ACL, Id

from rota.coordination import membership
from rota.coordination.group_state import GroupState
from rota.coordination.protect import exposed
from rota.coordination.records import Live
from rota.errors import Forbidden
from tests.conformance.access.connections import open_store
from tests.guarded import Guarded

pytestmark = pytest.mark.filterwarnings("ignore:.*SSLSocket:pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def chroot() -> str:
    return f"/{uuid.uuid4().hex}/one/staging"


def test_the_nodes_of_a_chroot_are_the_controllers(guarded: Guarded, scheme: str, chroot: str) -> None:
    mine = {**guarded.environment(scheme, "controller")}
    mine["ROTA_ZOOKEEPER"] += chroot
    theirs = {**guarded.environment(scheme, "worker"), "ROTA_ZOOKEEPER": mine["ROTA_ZOOKEEPER"]}
    with open_store(mine) as controller, open_store(theirs) as worker:
        tree = GroupState(controller, "g")
        tree.found()
        membership.join(GroupState(worker, "g"), "w1", Live())
        assert [one.worker for one in tree.live()] == ["w1"]
        assert not exposed(controller)
        with pytest.raises(Forbidden, match=r"does not let .* create /rota/h: right c on /rota is of a controller"):
            worker.create("/rota/h")
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as stranger:
        with pytest.raises(Forbidden):
            stranger.create(f"{chroot}/mine")


def test_a_chroot_that_is_closed_is_reported_with_its_whole_path(guarded: Guarded, chroot: str) -> None:
    environ = dict(guarded.environment("sasl", "controller"))
    with open_store({"ROTA_ZOOKEEPER": guarded.server.hosts}) as admin:
        admin.ensure(chroot)
        admin.client.set_acls(chroot, [ACL(1, Id("world", "anyone"))])
    with open_store({**environ, "ROTA_ZOOKEEPER": guarded.server.hosts + chroot}) as controller:
        with pytest.raises(Forbidden) as refused:
            GroupState(controller, "g").found()
    said = str(refused.value)
    assert (
        f"create {chroot}/rota: right c on {chroot} belongs to its administrator. Let them make {chroot}/rota with"
        in said
    )
