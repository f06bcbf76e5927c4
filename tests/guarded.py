"""A real ZooKeeper that knows passwords and certificates, and the credentials of each role for it."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from rota.coordination.access import digest_password
from rota.coordination.embedded import EmbeddedZooKeeper
from rota.machine import free_port

ROLES = ("worker", "controller", "person", "reader")
JAAS = """Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required {users}; }};"""


def password(role: str) -> str:
    """The settings that the operator of the server gave the role."""
    return f"s3cret-of-the-{role}"


class Authority:
    """A CA and what it signs, in `folder`: `<name>.pem`, `<name>.key`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.folder, self.name = folder, name
        self.pem = folder / f"{name}.pem"
        self._run("req", "-x509", *self._new(name), "-out", str(self.pem), "-days", "2", "-subj", f"/CN={name}")

    def sign(self, name: str, days: int = 2, host: str = "IP:127.0.0.1") -> Path:
        """A certificate of that name for that host; with days below 0 it has expired."""
        request, extra, made = (self.folder / f"{name}.{kind}" for kind in ("csr", "ext", "pem"))
        self._run("req", *self._new(name), "-out", str(request), "-subj", f"/CN={name}")
        extra.write_text(f"subjectAltName={host}\n")
        signing = ["-CA", str(self.pem), "-CAkey", str(self.folder / f"{self.name}.key"), "-extfile", str(extra)]
        self._run("x509", "-req", "-in", str(request), *signing, "-days", str(days), "-out", str(made))
        both = self.folder / f"{name}.both.pem"  # a key store of ZooKeeper is one file
        both.write_text((self.folder / f"{name}.key").read_text() + made.read_text())
        return made

    def lock_key(self, name: str, password: str, to: str) -> None:
        """Writes the key of `name` anew, under a password, as the key of `to`."""
        source, locked = self.folder / f"{name}.key", self.folder / f"{to}.key"
        self._run("ec", "-in", str(source), "-aes256", "-passout", f"pass:{password}", "-out", str(locked))

    def _new(self, name: str) -> tuple[str, ...]:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")
        return (*curve, "-nodes", "-keyout", str(self.folder / f"{name}.key"))

    def _run(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)


@dataclass(frozen=True)
class Guarded:
    """The server, its plain and its TLS port, and what a process of each role has in its environment."""

    server: EmbeddedZooKeeper
    secure: str
    pki: Authority

    def environment(self, scheme: str, role: str) -> Mapping[str, str]:
        """The names that a process of the role sets; without a role: those of any client."""
        if scheme == "x509":
            mine = {
                "ROTA_ZOOKEEPER": self.secure,
                "ROTA_ZOOKEEPER_CA_FILE": str(self.pki.pem),
                "ROTA_ZOOKEEPER_CERT_FILE": str(self.pki.folder / f"{role}.pem"),
                "ROTA_ZOOKEEPER_KEY_FILE": str(self.pki.folder / f"{role}.key"),
            }
        else:
            mine = {"ROTA_ZOOKEEPER": self.server.hosts, "ROTA_ZOOKEEPER_AUTH": f"{scheme}:{role}:{password(role)}"}
        return {**mine, "ROTA_ZOOKEEPER_ACL": acl(scheme)}


def acl(scheme: str) -> str:
    """ROTA_ZOOKEEPER_ACL with one identity a role."""
    names = {
        "sasl": {role: role for role in ROLES},
        "digest": {role: digest_password(role, password(role)) for role in ROLES},
        "x509": {role: f"CN={role}" for role in ROLES},
    }[scheme]
    return ";".join(f"{role}={scheme}:{name}" for role, name in names.items())


def write_users(folder: Path) -> Path:
    """The users of SASL, as the server reads them."""
    users = " ".join(f'user_{role}="{password(role)}"' for role in ROLES)
    file = folder / "jaas.conf"
    file.write_text(JAAS.format(users=users))
    return file


def configure(pki: Authority, port: int) -> tuple[str, ...]:
    """The lines of zoo.cfg beside the usual ones."""
    return (
        "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
        "secureClientPortAddress=127.0.0.1",
        f"secureClientPort={port}",
        f"ssl.keyStore.location={pki.folder / 'server.both.pem'}",
        f"ssl.trustStore.location={pki.pem}",
        "ssl.clientAuth=need",
    )


@contextmanager
def guard(folder: Path, key_password: str | None = None) -> Iterator[Guarded]:
    """A server that wants passwords and certificates runs in `folder`; the keys of the roles have that password, if any."""
    pki = Authority(folder)
    for name in ("server", *ROLES):
        pki.sign(name)
    for role in ROLES if key_password else ():
        pki.lock_key(role, key_password, to=role)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.auth.login.config={write_users(folder)}")
        port = free_port()
        server = EmbeddedZooKeeper(folder / "data", extra=configure(pki, port)).start()
    try:
        yield Guarded(server, f"127.0.0.1:{port}", pki)
    finally:
        server.stop()
