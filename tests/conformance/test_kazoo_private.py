"""One module uses what kazoo does not document, and the installed kazoo has it."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.protocol import connection

from rota.coordination.kazoo_client import Client

ROOM = Path(__file__).parents[2] / "rota" / "coordination"
PRIVATE = re.compile(r"(?:client|connection|fresh|old|\bc)\._[a-z]\w*|KeeperState")

TAKEN = (
    "def _connect(self, host, hostip, port):",
    "read_timeout = negotiated_session_timeout * 2.0 / 3.0",
    "def _connect_loop(self, retry):",
    "def _invoke(self, timeout, request, xid=None):",
    "def _call(self, request, async_object):",
    "self.connection_stopped = ",
)


def test_one_module_reaches_into_kazoo() -> None:
    """Tried with 2.11; pyproject.toml lets in no other."""
    assert version("kazoo").startswith("2.11.")
    assert [path.name for path in ROOM.glob("*.py") if PRIVATE.search(path.read_text())] == ["kazoo_client.py"]


def test_kazoo_has_what_is_taken_from_it() -> None:
    """A release that calls one otherwise, or with other arguments, is seen here and not by a session that is lost."""
    text = inspect.getsource(connection) + inspect.getsource(KazooClient)
    assert [taken for taken in TAKEN if taken not in text] == []
    client = Client("127.0.0.1:1", 10.0, lambda _: None, lambda: None)
    assert (client.failed, client.unwelcome, client.disconnected) == (False, False, True)
    clashes = {name for name in vars(Client) if not name.startswith("__")} & set(dir(KazooClient))
    assert not clashes, "names of ours that kazoo has, too"
