"""A ZooKeeper that takes no more connections of one address closes them without an answer."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from rota.coordination.client import connect
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.errors import Unavailable

MOST = 3


def test_the_last_client_learns_which_limit_to_raise_and_the_others_continue(tmp_path: Path) -> None:
    extra = [f"maxClientCnxns={MOST}"]
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedZooKeeper(tmp_path / "server", extra=extra))
        stores = [stack.enter_context(connect(server.hosts)) for _ in range(MOST)]
        with pytest.raises(Unavailable, match=r"too many of this address.* Raise maxClientCnxns"):
            connect(server.hosts, connect_timeout=2.0)
        assert all(store.wait_active(1.0) for store in stores)
        stores.pop().close()
        stack.enter_context(connect(server.hosts))
