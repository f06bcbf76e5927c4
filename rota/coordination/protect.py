"""Compares the ACLs of existing znodes with the configured ones, and sets them for an operator.

Law: the wanted ACL is what `access` gives a node that is created now. Nodes that were created before the credentials,
by another client or under an older password keep their ACL until `protect`.
"""

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

from kazoo.security import ACL, Id

from rota.coordination.access import BITS, ROLES, Acl
from rota.coordination.client import ZooKeeperStore
from rota.coordination.layout import ROOT
from rota.coordination.store import CLOCK
from rota.errors import ConfigError, CoordinationError, Forbidden

MAX_CHECKED = 100  # records of a folder that a check reads; what is wrong with one is mostly wrong with all


def protect(store: ZooKeeperStore) -> int:
    """Sets the ACL of every znode of every group from ROTA_ZOOKEEPER_ACL. Returns how many there were.

    Raises ConfigError without that variable, or if it does not name this process as an operator; Forbidden if this
    process is not an operator now.
    """
    if not store.access.roles:
        raise ConfigError("ROTA_ZOOKEEPER_ACL is not set. Set it as docs/protocol.md describes, then: rota protect")
    _try(store)
    done = 0
    for path in _nodes(store, None):
        store.ask(partial(_set, path, _wanted(store, path)), "a", path, "set the rights on")
        done += 1
    return done


def _try(store: ZooKeeperStore) -> None:
    """Raises ConfigError if this process would no longer be an operator: that could not be undone, not even halfway."""
    path = f"{ROOT}/=protect-{store.session:x}"  # no group, and gone with this session
    if store.get(ROOT) is None:
        return
    store.create(path, ephemeral=True)
    try:
        store.ask(partial(_set, path, _wanted(store, path)), "a", path, "set the rights on")
    except Forbidden:
        raise ConfigError(
            f"ROTA_ZOOKEEPER_ACL does not name {store.access.me} as a person, so no role could undo the change. Nothing "
            f"was changed. Mend ROTA_ZOOKEEPER_ACL, or ROTA_ZOOKEEPER_AUTH, then: rota protect"
        ) from None
    finally:
        with suppress(CoordinationError):
            store.delete(path)


def exposed(store: ZooKeeperStore) -> dict[str, tuple[str, ...]]:
    """Maps each kind of wrong ACL to its znodes, in every group."""
    found: dict[str, list[str]] = {}
    for path in _nodes(store, MAX_CHECKED):
        for wrong in _differences(store, path):
            found.setdefault(wrong, []).append(path)
    return {wrong: tuple(paths) for wrong, paths in found.items()}


def _nodes(store: ZooKeeperStore, most: int | None) -> Iterator[str]:
    """The root and its descendants, each node before its children, with a limit on the records of a folder."""
    if store.get(ROOT) is None:
        return
    yield ROOT
    for group in store.children(ROOT):
        yield f"{ROOT}/{group}"
        for folder in store.children(f"{ROOT}/{group}") if f"{ROOT}/{group}" != CLOCK else ():
            yield f"{ROOT}/{group}/{folder}"
            for name in store.children(f"{ROOT}/{group}/{folder}")[:most]:
                yield f"{ROOT}/{group}/{folder}/{name}"


def _wanted(store: ZooKeeperStore, path: str) -> list[ACL]:
    return [ACL(bits, Id(*identity)) for identity, bits in store.access.acl(path).items()]


def _set(path: str, wanted: list[ACL], client: Any) -> Any:
    return client.set_acls_async(path, wanted)


def _seen(store: ZooKeeperStore, path: str) -> Acl:
    """The ACL of the node; the wanted one if the node was deleted meanwhile."""
    found = store.ask(lambda client: client.get_acls_async(path), "r", path, "see the rights on")
    return {(one.id.scheme, one.id.id): one.perms for one in found[0]} if found else store.access.acl(path)


def _differences(store: ZooKeeperStore, path: str) -> Iterator[str]:
    """Which identities lack rights, and which have too many."""
    acl = _seen(store, path)
    hidden = {scheme for scheme, name in acl if scheme == "digest" and name.endswith(":x")}
    wanted = {(scheme, _shown(name, scheme in hidden)): bits for (scheme, name), bits in store.access.acl(path).items()}
    roles = {
        (scheme, _shown(name, scheme in hidden)): role
        for role in reversed(ROLES)
        for scheme, name in store.access.roles.get(role, ())
    }
    for identity, bits in wanted.items():
        if lacks := bits & ~acl.get(identity, 0):
            yield f"{roles.get(identity, 'each client')} ({_named(identity)}) lacks {_letters(lacks)}"
    for identity, bits in acl.items():
        if more := bits & ~wanted.get(identity, 0):
            yield f"{_named(identity)} has {_letters(more)} and should not"


def _shown(name: str, hidden: bool) -> str:
    """ZooKeeper hides the hash of a digest from clients that may not set ACLs."""
    return f"{name.partition(':')[0]}:x" if hidden else name


def _named(identity: tuple[str, str]) -> str:
    scheme, name = identity
    return f"{scheme}:{name.partition(':')[0] if scheme == 'digest' else name}"


def _letters(bits: int) -> str:
    return "".join(letter for letter, bit in BITS.items() if bits & bit)
