"""The settings that `rota check` prints: their values without secrets, and where each value comes from."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING

from rota import errors
from rota.errors import MASK, SECRET

if TYPE_CHECKING:
    from rota.catalog import Catalog
    from rota.settings import Settings

HASH = re.compile(r"(?<=:)[A-Za-z0-9+/]{27}=")  # of a password, in an ACL


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `origin` is `environment`, `default`, `rota up` if the value is that of the stack that runs here, or
    `missing` for a `${VAR}` of a pipeline that is not set."""

    name: str
    value: str
    origin: str


def mask_setting(name: str, value: str) -> str:
    """The value with secrets replaced: all of it if its name is that of a secret, and a login in an address."""
    return MASK if value and SECRET.match(name) else errors.mask(HASH.sub(MASK, value))


def list_settings(
    settings: "Settings", catalog: "Catalog | None", environ: Mapping[str, str], running: Mapping[str, str]
) -> Iterator[Setting]:
    """Yield each setting of rota, Java and Dagster, and each variable of the pipelines. `running`: those of `rota up`."""
    from rota.settings import VARIABLE

    def find_origin(name: str) -> str:
        return "rota up" if running.get(name, "") == environ.get(name) else "environment"

    for field in fields(settings):
        name, value = f"ROTA_{field.name.upper()}", getattr(settings, field.name)
        text = f"{value.total_seconds():g} s" if isinstance(value, timedelta) else str(value)
        given = name in environ or f"{name}_FILE" in environ
        yield Setting(name, mask_setting(name, text), find_origin(name) if given else "default")
    for name in ("JAVA_HOME", "DAGSTER_HOME"):
        if name in environ:
            yield Setting(name, environ[name], "environment")
    wanted = {
        name
        for pipeline in (catalog.pipelines.values() if catalog else ())
        for text in (*pipeline.source.texts, pipeline.table.path)
        for name in VARIABLE.findall(text)
    }
    for name in sorted(wanted):
        there = name in environ
        yield Setting(
            name, mask_setting(name, environ[name]) if there else "", find_origin(name) if there else "missing"
        )
