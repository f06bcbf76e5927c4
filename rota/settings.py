"""The settings of a process: one frozen `Settings`, read from the variables `ROTA_*`.

Law: a secret comes from the environment or from the file that `<name>_FILE` names, never from an argument. No `repr` and no
error holds it.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from pathlib import Path

from rota.errors import ConfigError, hide, shown
from rota.stores import KINDS, check_url, is_url

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
SECRETS = ("zookeeper_auth", "zookeeper_key_password", "spark_token")
ENDPOINT = re.compile(  # of a Spark Connect server: nothing in it is a secret
    r"sc://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?"
    r"(/(;(use_ssl|user_id|user_agent|grpc_keepalive_[a-z_]+)=[A-Za-z0-9._-]{0,128}){0,8})?"
)
CHROOT = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._-]{1,128}){0,8}")  # where ZooKeeper's tree begins for us
ADDRESS = "Give host:port[,host:port...], and /path behind the last where all of it is below that znode"
MANY = 10_000  # names, of which the nearest is found within a second
FEW, MEANT = 8, 3  # names that an error lists
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Laws: 1 s <= `session_timeout` < `max_shutdown`. `linger`, `max_run` and `report` are from 0 to 3000 s, because
    Dagster ends a run after an hour, and `tick` from 0 to 45 s, because it ends a sensor's tick after a minute.
    Raises ConfigError at construction, never later."""

    zookeeper: str = "127.0.0.1:2181"
    pipelines: Path = Path("pipelines")
    dagster: str = "http://127.0.0.1:3000"
    location: str = ""
    session_timeout: timedelta = timedelta(seconds=10)
    max_shutdown: timedelta = timedelta(seconds=120)
    linger: timedelta = timedelta(seconds=30)
    max_run: timedelta = timedelta(seconds=300)
    report: timedelta = timedelta(seconds=60)
    # Dagster starts ticks every 5 s: just below a multiple of it, little time is without a tick. Its daemon ends after its
    # ticks, and Kubernetes kills it after 30 s.
    tick: timedelta = timedelta(seconds=28.8)
    zookeeper_auth: str = field(default="", repr=False)
    zookeeper_acl: str = ""
    zookeeper_ca_file: str = ""
    zookeeper_cert_file: str = ""
    zookeeper_key_file: str = ""
    zookeeper_key_password: str = field(default="", repr=False)
    spark_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not timedelta(seconds=1) <= self.session_timeout < self.max_shutdown:
            raise ConfigError(
                f"ROTA_SESSION_TIMEOUT ({self.session_timeout.total_seconds():g} s) must be at least 1 s and below "
                f"ROTA_MAX_SHUTDOWN ({self.max_shutdown.total_seconds():g} s). Change one of the two."
            )
        for one, most in (("linger", 3000), ("max_run", 3000), ("report", 3000), ("tick", 45)):
            if not timedelta(0) <= getattr(self, one) <= timedelta(seconds=most):
                given = f"{getattr(self, one).total_seconds():g}"
                raise ConfigError(f"ROTA_{one.upper()}={given} is not from 0 to {most} seconds. Change it")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """Reads the settings; a variable that is not set keeps its default. Raises ConfigError."""
        chosen: dict[str, object] = {one: secret(f"ROTA_{one.upper()}", environ) for one in SECRETS}
        for one in fields(cls):
            if one.name not in SECRETS and (name := f"ROTA_{one.name.upper()}") in environ:
                text = Path(environ[name]) if one.type is Path else environ[name]
                chosen[one.name] = _seconds(name, environ[name]) if one.type is timedelta else text
        return cls(**chosen)  # type: ignore[arg-type]


def secret(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """Reads the secret from the variable `name`, or from the file that `<name>_FILE` names; empty if neither is set. Raises
    ConfigError if both are set, or the file cannot be read."""
    file = environ.get(f"{name}_FILE", "")
    if name in environ and file:
        raise ConfigError(f"{name} and {name}_FILE are both set. Unset one of them")
    if not file:
        return hide(environ.get(name, ""))
    try:
        return hide(Path(file).read_text().strip("\r\n"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"{name}_FILE={file!r} cannot be read ({why}). Name a file that holds it") from None


def _seconds(name: str, text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ConfigError(f"{name}={shown(text)} is not a number of seconds. Give one, for example {name}=10") from None


def checked_endpoint(text: str) -> str:
    """Returns `text` if it is the address of a Spark Connect server without a secret. Raises ConfigError, which does not
    repeat what may be one."""
    if ENDPOINT.fullmatch(text):
        return text
    if re.search(r"[@=;]", text):
        raise ConfigError(
            "The Spark Connect address may say use_ssl, user_id, user_agent and grpc_keepalive_*, and no secret: arguments "
            "and ZooKeeper are read by others. Give sc://HOST:PORT, and set ROTA_SPARK_TOKEN here and for Dagster's runs"
        )
    raise ConfigError(f"{shown(text)} is no Spark Connect address. Give one like sc://host:15002")


def split_hosts(hosts: str) -> tuple[tuple[str, ...], str]:
    """Each `host:port` of a ZooKeeper's address `host:port[,host:port...][/path]`, and its chroot `/path`, empty without
    one. Raises ConfigError."""
    places, slash, path = hosts.strip().partition("/")
    each, chroot = tuple(place.strip() for place in places.split(",")), (slash + path).rstrip("/")
    for place in each:
        host, _, port = place.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ConfigError(f"ROTA_ZOOKEEPER={shown(hosts)}: {shown(place)} is not host:port. {ADDRESS}")
    if not CHROOT.fullmatch(chroot):
        raise ConfigError(f"ROTA_ZOOKEEPER={shown(hosts)}: {shown(chroot)} is no path of a znode. {ADDRESS}")
    return each, chroot


def check_known(kind: str, name: str, names: Collection[str]) -> str:
    """Returns `name` if it is one of `names`. Raises ConfigError, which names those that may be meant, and a few others. Of
    partitions the key alone identifies which is meant."""
    if name in names:
        return name
    pipeline = f"{name.partition(':')[0]}:"
    there = sorted(n for n in names if n.startswith(pipeline)) or sorted(names)
    known = f"{', '.join(there[:FEW]) or 'none'}{f' and {len(there) - FEW:,} more' if len(there) > FEW else ''}."
    near = f" Did you mean {' or '.join(meant)}?" if (meant := _find_meant(name, sorted(names), there)) else ""
    raise ConfigError(f"Unknown {kind} {shown(name)}. Known: {known}{near}", unknown=name)


def _find_meant(name: str, names: Sequence[str], there: Sequence[str]) -> list[str]:
    """At most `MEANT` of all names: those that have the name's key, in whatever case; else the one of these that is most
    like it."""
    from difflib import get_close_matches

    folded = name.casefold()
    key = folded.rpartition(":")[2]
    alike = [n for n in names if n.casefold() == folded]
    if same := alike or [n for n in names if n.rpartition(":")[2].casefold() == key]:
        return same[:MEANT]
    comparable = len(name) < 2 * max(map(len, there), default=0)  # a name of megabytes is near to none
    return get_close_matches(name, there[:MANY], n=1, cutoff=0.85) if comparable else []


def expand(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """Replaces every `${VAR}` in the text, in the process that uses it, so that no secret is sent elsewhere. The value is
    that of the variable `VAR`, else the content of the file that `VAR_FILE` names, read at each call. Raises ConfigError if
    neither is set."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name not in environ and not environ.get(f"{name}_FILE"):
            raise ConfigError(
                f"${{{name}}} in {shown(text)} is not set. Set the environment variable {name}, or {name}_FILE to the path "
                f"of a file that holds the value"
            )
        return environ[name] if name in environ else secret(name, environ)

    return VARIABLE.sub(value, text)


def explain_renewal(texts: Iterable[str], environ: Mapping[str, str] = os.environ) -> str:
    """Returns the step that gives other values to the `${VAR}` of these texts; empty if there is none."""
    names = sorted({name for text in texts for name in VARIABLE.findall(text)})
    files = [environ[f"{name}_FILE"] for name in names if name not in environ and environ.get(f"{name}_FILE")]
    fixed = [name for name in names if name in environ]
    steps = [f"Write the valid value into {' and '.join(files)}: the next run reads it"] if files else []
    if fixed:
        steps.append(f"Set {' and '.join(fixed)} for Dagster's code server and its runs, and restart the code server")
    return ". Or: ".join(steps)


def resolve_place(text: str, schemes: Collection[str] = tuple(KINDS), environ: Mapping[str, str] = os.environ) -> str:
    """Where a declared table lies, with every `${VAR}` replaced: an absolute path, or an address of one of the schemes.
    Raises ConfigError for another address."""
    place = expand(text, environ)
    return check_url(place, schemes) if is_url(place) else str(resolve_folder(text, environ))


def checked_address(text: str, schemes: Collection[str] = tuple(KINDS)) -> str:
    """Returns `text` if a table may be declared there, as far as it shows without the environment; or a landing folder, with
    the schemes for that. Raises ConfigError."""
    return text if text.startswith(tuple(f"{one}://" for one in schemes)) else local(text)


def resolve_folder(text: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The absolute path of a declared folder, with every `${VAR}` replaced. Raises ConfigError if it is an address."""
    return Path(local(expand(text, environ))).absolute()


def local(path: str) -> str:
    """Returns `path` if it is no address: `s3://bucket` would silently be a folder named `s3:`. Raises ConfigError."""
    if found := SCHEME.match(path):
        raise ConfigError(
            f"{path!r} is an address of {found[1]}:, which rota does not read or write here. Give a folder, or "
            f"an address that the declaration lists, such as s3://bucket/prefix"
        )
    return path
