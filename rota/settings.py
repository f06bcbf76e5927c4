"""Where things are: one frozen `Settings`, read from `ROTA_*`. Code says what, the environment where, znodes say now."""

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from rota.errors import ConfigError

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Law: `session_timeout` < `max_shutdown`. Raises ConfigError at construction, never later."""

    zookeeper: str = "127.0.0.1:2181"
    pipelines: Path = Path("pipelines")
    session_timeout: timedelta = timedelta(seconds=10)
    max_shutdown: timedelta = timedelta(seconds=120)

    def __post_init__(self) -> None:
        if not timedelta(seconds=1) <= self.session_timeout < self.max_shutdown:
            raise ConfigError(
                f"ROTA_SESSION_TIMEOUT ({self.session_timeout.total_seconds():g} s) must be at least 1 s and below "
                f"ROTA_MAX_SHUTDOWN ({self.max_shutdown.total_seconds():g} s). Change one of the two."
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        """The settings of this process; what is not set keeps its default."""
        chosen: dict[str, object] = {}
        if "ROTA_ZOOKEEPER" in environ:
            chosen["zookeeper"] = environ["ROTA_ZOOKEEPER"]
        if "ROTA_PIPELINES" in environ:
            chosen["pipelines"] = Path(environ["ROTA_PIPELINES"])
        for field in ("session_timeout", "max_shutdown"):
            if (name := f"ROTA_{field.upper()}") in environ:
                chosen[field] = _seconds(name, environ[name])
        return cls(**chosen)  # type: ignore[arg-type]


def _seconds(name: str, text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        raise ConfigError(f"{name}={text!r} is not a number of seconds. Give one, for example {name}=10") from None


def checked_id(kind: str, text: object) -> str:
    """`text` if it is a valid id of a worker, group, pipeline or partition; else ConfigError. Checked before any I/O."""
    if isinstance(text, str) and ID.fullmatch(text):
        return text
    raise ConfigError(
        f"Bad {kind} id {text!r}: an id starts with a letter or digit and goes on with up to 127 of A-Z a-z 0-9 . _ -"
    )


def known(kind: str, name: str, names: Collection[str]) -> str:
    """`name` if it is one of `names`; else ConfigError with those that there are."""
    if name in names:
        return name
    shown = ", ".join(sorted(names)[:20]) or "none"
    raise ConfigError(f"Unknown {kind} {name!r}. Known: {shown}{' ...' if len(names) > 20 else ''}")


def expanded(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """`text` with every `${VAR}` replaced, in the process that uses it: a secret never travels unexpanded elsewhere."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in environ:
            raise ConfigError(f"${{{match[1]}}} in {text!r} is not set. Set the environment variable {match[1]}")
        return environ[match[1]]

    return VARIABLE.sub(value, text)


def folder(text: str, environ: Mapping[str, str] = os.environ) -> Path:
    """The absolute path of a declared folder, expanded. Raises ConfigError for an address that names a scheme."""
    return Path(local(expanded(text, environ))).absolute()


def local(path: str) -> str:
    """`path` unless it is an address: `s3://bucket` would silently be a folder named `s3:`."""
    if found := SCHEME.match(path):
        raise ConfigError(f"{path!r}: rota serves folders, not {found[1]}: addresses. Mount it, and give its path")
    return path
