"""Access control: the credentials of this process, and what each role may do with every znode.

Laws:
1. One table defines which role creates, deletes and writes which record (`RIGHTS`; the table of znodes in
   `docs/protocol.md` shows it). The ACL of every node comes from it, also of folders: ZooKeeper checks the folder's ACL
   for creating and deleting its children. The role `person` may do everything.
2. Without ROTA_ZOOKEEPER_ACL every client may do everything, which is ZooKeeper's default; `rota check` reports this.
3. With a CA or a certificate the connection uses TLS, and the server's certificate and name are verified. A certificate
   error is reported in the words of the TLS library, not as a timeout.
"""

import base64
import hashlib
import re
import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rota.coordination.layout import ROOT
from rota.coordination.store import Check, Create, Delete, Op
from rota.errors import ConfigError, hide, shown
from rota.settings import Settings, split_hosts

BITS = {"r": 1, "w": 2, "c": 4, "d": 8, "a": 16}
EVERYTHING = "rwcda"
ROLES = ("worker", "controller", "person", "reader")  # rota worker, Dagster and its runs, operators' commands, readers
NEEDED = ROLES[:3]
# In addition to reading: c creates, d deletes, w writes it. `x/` is every record in the folder x.
RIGHTS: Mapping[str, Mapping[str, str]] = {
    "meta": {"controller": "cw"},
    "workers/": {},
    "overrides": {"controller": "c"},
    "live/": {"worker": "cdw"},
    "partitions/": {"controller": "cw"},
    "controller": {"controller": "cw"},
    "head": {"controller": "cw"},
    "assign/": {"controller": "cdw", "worker": "cw"},
    "own/": {"controller": "c", "worker": "w"},
    "grab/": {"worker": "cd"},
    "checkpoints/": {"controller": "cw"},
    "runs/": {"controller": "cdw"},
    "parked/": {"controller": "cdw"},
    "epochs/": {"controller": "cdw"},
    "refused": {"controller": "cw"},
}
ALERT = b"\x15"  # first byte of the answer of a server that expects TLS to plain text, if it answers
NO_TLS = "it ends the connection: if it speaks TLS, set ROTA_ZOOKEEPER_CA_FILE"
CLOSED = "it ends the connection: it has too many of this address, or it speaks TLS"
CLOCK = {"worker": "w", "controller": "cw", "reader": "w"}  # written empty to read the server's time
SILENCE = 2.0  # seconds in which a server answers
DIGEST = re.compile(r"[^:]+:[A-Za-z0-9+/]{27}=")
_INT = struct.Struct("!i")

Acl = Mapping[tuple[str, str], int]  # (scheme, id) -> bits
OPEN: Acl = {("world", "anyone"): 31}


@dataclass(frozen=True, slots=True)
class Access:
    """The credentials of this process (`scheme` and its secret, TLS files) and the identities of each role."""

    scheme: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    roles: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    key_password: str = field(default="", repr=False)
    chroot: str = ""  # where its paths begin

    @classmethod
    def of(cls, settings: Settings) -> "Access":
        """The credentials that the environment declares. Raises ConfigError, without the secret."""
        scheme, user, password = _credentials(settings.zookeeper_auth)
        access = cls(
            scheme,
            user,
            hide(password),
            _roles(settings.zookeeper_acl),
            settings.zookeeper_ca_file,
            settings.zookeeper_cert_file,
            settings.zookeeper_key_file or settings.zookeeper_cert_file,
            settings.zookeeper_key_password,
            split_hosts(settings.zookeeper)[1],
        )
        if settings.zookeeper_key_file and not settings.zookeeper_cert_file:
            raise ConfigError("ROTA_ZOOKEEPER_KEY_FILE is set without ROTA_ZOOKEEPER_CERT_FILE. Set both")
        if access.tls:
            access.context()
        return access

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return bool(self.ca_file or self.cert_file)

    def context(self) -> ssl.SSLContext:
        """The client side of TLS, in kazoo's form. Raises ConfigError if one of its files is not valid."""
        context = ssl.create_default_context()
        try:
            if self.ca_file:
                context.load_verify_locations(self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ROTA_ZOOKEEPER_CA_FILE={self.ca_file!r}: {_said(error)}. Name a PEM file with the certificate of the CA"
            ) from None
        try:
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file, self.key_password)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ROTA_ZOOKEEPER_CERT_FILE={self.cert_file!r} with the key in {self.key_file!r}: {_said(error)}. Name PEM "
                "files that belong together, and set ROTA_ZOOKEEPER_KEY_PASSWORD where the key has one"
            ) from None
        return context

    def of_client(self) -> dict[str, Any]:
        """The arguments of kazoo's client."""
        chosen: dict[str, Any] = {}
        if self.scheme == "digest":
            chosen["auth_data"] = [("digest", f"{self.user}:{self.password}")]
        if self.scheme == "sasl":
            chosen["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": self.user, "password": self.password}
        if self.tls:
            chosen |= {"use_ssl": True, "verify_certs": True, "check_hostname": True, "ca": self.ca_file or None}
            if self.cert_file:
                # "" and not None: OpenSSL would ask the terminal for it
                chosen |= {"certfile": self.cert_file, "keyfile": self.key_file, "keyfile_password": self.key_password}
        return chosen

    @property
    def me(self) -> str:
        """The identity of this process, as far as it is known, with its role if the roles name it."""
        if not self.scheme:
            return (
                "the owner of ROTA_ZOOKEEPER_CERT_FILE" if self.cert_file else "a process without ROTA_ZOOKEEPER_AUTH"
            )
        known = self.user if self.scheme == "sasl" else digest_password(self.user, self.password)
        roles = [role for role in ROLES if (self.scheme, known) in self.roles.get(role, ())]
        return f"{self.scheme}:{self.user}" + (f" ({', '.join(roles)})" if roles else "")

    def acl(self, path: str) -> Acl:
        """The ACL of the node at `path`."""
        if not self.roles:
            return OPEN
        extra = rights(path)
        acl: dict[tuple[str, str], int] = {}
        for role, identities in self.roles.items():
            for identity in identities:
                acl[identity] = acl.get(identity, 0) | sum(BITS[letter] for letter in {"r", *extra.get(role, "")})
        return acl

    def packed(self, path: str) -> bytes:
        """The ACL in the form of a request."""
        entries = [_INT.pack(bits) + _text(scheme) + _text(name) for (scheme, name), bits in self.acl(path).items()]
        return _INT.pack(len(entries)) + b"".join(entries)

    def refused(self, op: Op) -> str:
        """The error line for a write that ZooKeeper refused to this process."""
        parent = op.path.rpartition("/")[0] or "/"
        letter, node = (
            ("c", parent) if isinstance(op, Create) else ("d", parent) if isinstance(op, Delete) else ("w", op.path)
        )
        if isinstance(op, Check):
            letter = "r"
        return self.lacking(letter, node, type(op).__name__.lower(), op.path)

    def lacking(self, letter: str, node: str, verb: str, path: str) -> str:
        """The error line for a missing right."""
        if node == "/":
            whole = self.chroot + path
            return (
                f"ZooKeeper does not let {self.me} {verb} {whole}: right {letter} on {self.chroot or '/'} belongs to "
                f"its administrator. Let them make {whole} with the right {letter} for this process, then: rota protect"
            )
        roles = " or ".join(role for role in ROLES if letter in "r" + rights(node).get(role, ""))
        whose = f"a {roles}" if roles else "no role"
        return (
            f"ZooKeeper does not let {self.me} {verb} {path}: right {letter} on {node} is of {whose}. Set "
            f"ROTA_ZOOKEEPER_AUTH to the credentials of one, or see `rota check`"
        )

    def why_not(self, hosts: str, unwelcome: bool) -> tuple[str, str]:
        """Why the first host gives no session, and the next step. `unwelcome`: a server ended the connection over
        credentials.
        """
        if why := self.unmet(split_hosts(hosts)[0][0]):
            if why == CLOSED:
                return why, "Raise maxClientCnxns in its settings; or, if it speaks TLS, set ROTA_ZOOKEEPER_CA_FILE"
            over_tls = "TLS" in why
            return (
                why,
                "Mend the certificates: `rota check`"
                if over_tls
                else "Start one with `rota up`, or set ROTA_ZOOKEEPER",
            )
        if unwelcome and self.scheme:
            return f"it does not accept the password of {self.me}", "Set ROTA_ZOOKEEPER_AUTH"
        return "it accepts connections, but gives no session", "Look into its log, or set ROTA_ZOOKEEPER"

    def unmet(self, place: str) -> str:
        """Why the server at `host:port` gives no session, found by connecting to it; empty if nothing is wrong so far."""
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), SILENCE) as link:
                if not self.tls:
                    link.sendall(b"ruok\n")  # every server answers that, except one that expects TLS
                    return {b"": CLOSED, ALERT: NO_TLS}.get(link.recv(1), "")
                with self.context().wrap_socket(link, server_hostname=host.strip("[]")) as inside:
                    inside.sendall(b"ruok")  # the server's verdict on our certificate follows its handshake
                    inside.recv(1)
        except ssl.SSLError as error:
            return f"TLS: {_said(error)}"
        except (ConnectionResetError, BrokenPipeError):
            return CLOSED
        except TimeoutError:
            return "it does not answer" if self.tls else ""
        except OSError as error:
            return (error.strerror or str(error)).lower()
        return ""


ANYONE = Access()


@lru_cache(maxsize=4096)
def rights(path: str) -> Mapping[str, str]:
    """Maps each role to its rights for the node, in addition to reading it."""
    parts = path.strip("/").split("/")
    folder, child = [*parts[2:], "", ""][:2]
    mine: Mapping[str, str] = {}
    if len(parts) == 1 or parts[0] != ROOT.strip("/"):  # or one of a chroot
        mine = {"controller": "c"}
    elif parts[1:] == ["clock"]:
        mine = _only(CLOCK, "w")
    elif len(parts) == 2:
        mine = {"controller": "c"}
    elif len(parts) == 3 and folder in RIGHTS:
        mine = _only(RIGHTS[folder], "w")
    elif len(parts) == 3 and f"{folder}/" in RIGHTS:
        mine = _only(RIGHTS[f"{folder}/"], "cd")
    elif child and f"{folder}/" in RIGHTS:
        mine = _only(RIGHTS[f"{folder}/"], "w")
    return {**mine, "person": EVERYTHING}


def _only(of: Mapping[str, str], letters: str) -> dict[str, str]:
    return {role: kept for role, has in of.items() if (kept := "".join(c for c in has if c in letters))}


def _text(text: str) -> bytes:
    return _INT.pack(len(text.encode())) + text.encode()


def digest_password(user: str, password: str) -> str:
    """The id under which ZooKeeper knows a digest user."""
    return f"{user}:{base64.b64encode(hashlib.sha1(f'{user}:{password}'.encode()).digest()).decode()}"


def _credentials(text: str) -> tuple[str, str, str]:
    if not text:
        return "", "", ""
    scheme, _, rest = text.partition(":")
    user, colon, password = rest.partition(":")
    if scheme not in ("digest", "sasl") or not user or not colon or not password or not text.isprintable():
        raise ConfigError(
            "ROTA_ZOOKEEPER_AUTH is not what it should be. Give digest:USER:PASSWORD or sasl:USER:PASSWORD on one line"
        )
    return scheme, user, password


def _roles(text: str) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Parses `role=scheme:id;role=scheme:id...`."""
    roles: dict[str, list[tuple[str, str]]] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        role, equals, identity = entry.partition("=")
        scheme, colon, name = identity.partition(":")
        if (
            role not in ROLES
            or not equals
            or not colon
            or not name
            or scheme not in ("sasl", "digest", "x509", "world")
        ):
            raise ConfigError(
                f"ROTA_ZOOKEEPER_ACL: {shown(role)} is not like ROLE=SCHEME:ID. Roles: {', '.join(ROLES)}; schemes: sasl, "
                "digest, x509, world; between two of them a semicolon"
            )
        if scheme == "digest" and not DIGEST.fullmatch(name):
            raise ConfigError(
                f"ROTA_ZOOKEEPER_ACL: the digest of role {role} is not USER:HASH. Give what this prints: USER: and "
                "printf USER:PASSWORD | openssl sha1 -binary | base64"
            )
        roles.setdefault(role, []).append((scheme, name))
    if roles and (missing := [role for role in NEEDED if role not in roles]):
        raise ConfigError(
            f"ROTA_ZOOKEEPER_ACL has no identity for {' and '.join(missing)}. Name one for each of {', '.join(NEEDED)}"
        )
    return {role: tuple(identities) for role, identities in roles.items()}


def _said(error: Exception) -> str:
    """The informative part of a TLS error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).lower().replace("_", " ")
        if "alert" in reason:  # the server's verdict on our certificate
            words = reason.partition("alert ")[2]
            return f"the server refuses our certificate ({words}): none, expired, or of a CA that it does not know"
        return "the server ended the handshake: is that its TLS port?" if "eof" in reason else reason
    return (getattr(error, "strerror", None) or str(error)).lower()
