"""The token that a Spark Connect server requires of its clients, and how a run gets the token.

Laws:
1. The server of a worker has a token: ROTA_SPARK_TOKEN, or on loopback a random token in a file that only this user reads.
   Beyond loopback no server starts without ROTA_SPARK_TOKEN: any client of a server runs code as the server's user.
2. ZooKeeper has the address of a server, never its token. A run reads the token from ROTA_SPARK_TOKEN or, on loopback, from
   the file. The port alone determines the file's path: no record leads a run to any other file.
3. Spark's server speaks no TLS: token and data travel in clear, unless the address has `use_ssl=true` and something in
   front of the server ends the TLS. (Spark's own client sends `token=` over TLS only.)
"""

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote

from rota.errors import ConfigError, EnvironmentFailed, hide
from rota.settings import secret

NAME = "ROTA_SPARK_TOKEN"
SPARKS_OWN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # what Spark's server and client read


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def of_server(host: str, port: int) -> str:
    """Return the token for a server at this address. A random token is stored for this user's runs. Raises ConfigError,
    EnvironmentFailed."""
    if given := secret(NAME):
        return given
    refuse_open(host)
    made = hide(secrets.token_urlsafe(24))
    try:
        path = _folder() / str(port)
        unseen = path.with_suffix(f".{os.getpid()}")
        unseen.unlink(missing_ok=True)
        with os.fdopen(os.open(unseen, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(made)
        unseen.replace(path)
    except OSError as error:
        raise EnvironmentFailed(
            f"{error.filename} cannot be written ({error.strerror}). Mend it, or set {NAME}"
        ) from error
    return made


def refuse_open(host: str) -> None:
    """Raise ConfigError if a server would listen beyond loopback without a token."""
    if not is_loopback(host) and not secret(NAME):
        raise ConfigError(
            f"Spark would listen at {host} without a token: every client that reaches it runs code as this user. Set {NAME} "
            f"(or {NAME}_FILE) for this worker and for Dagster's runs, or leave it on 127.0.0.1"
        )


def forget_token(port: int) -> None:
    """Delete the token file of a server that ended."""
    with suppress(OSError, EnvironmentFailed):
        (_folder() / str(port)).unlink()


def add_token(endpoint: str) -> str:
    """Return the address with its token, for Spark's client alone; unchanged if there is no token. Raises ConfigError."""
    place, _, parameters = endpoint.removeprefix("sc://").partition("/")
    over_tls = "use_ssl=true" in parameters.lower()
    if SPARKS_OWN in os.environ and not over_tls:
        raise ConfigError(
            f"{SPARKS_OWN} is set: with it Spark's client speaks TLS to every server. Unset it, and set {NAME} instead"
        )
    token = secret(NAME) or _kept(place)
    if not token:
        return endpoint
    coded = hide(quote(token, safe=""))  # messages that quote the address contain this form
    given = f"token={coded}" if over_tls else f"authorization=Bearer%20{coded}"
    return f"sc://{place}/{parameters or ''};{given}"


def sent_in_clear(endpoint: str) -> bool:
    """Whether runs send ROTA_SPARK_TOKEN to a server beyond loopback without TLS."""
    place, _, parameters = endpoint.removeprefix("sc://").partition("/")
    host = place.rpartition(":")[0] or place
    return bool(secret(NAME)) and not is_loopback(host) and "use_ssl=true" not in parameters.lower()


def _kept(place: str) -> str:
    """Return the token that a worker on this machine stored for this user; empty if there is none."""
    host, _, port = place.rpartition(":")
    if not is_loopback(host) or not port.isdigit():
        return ""
    with suppress(OSError, ValueError, EnvironmentFailed):
        return hide((_folder() / port).read_text())
    return ""


def _folder() -> Path:
    """Return a folder that only this user can access. Raises EnvironmentFailed if another user made it."""
    folder = Path(tempfile.gettempdir(), f"rota-spark-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    seen = folder.lstat()
    if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        raise EnvironmentFailed(f"{folder} is not a folder of this user alone. Remove it, or set {NAME}")
    return folder
