"""What pipeline files declare for Dagster beside their pipelines, as far as Dagster takes it together.

Law: what runs goes on. Of two definitions that collide the elder file's is served and the other is left out; it stops no
pipeline, and nothing else of its file.
"""

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import dagster as dg

from rota.dagster.pipeline_files import list_keys, load_file

Merge = Callable[[Sequence[dg.Definitions]], object]  # raises what Dagster raises where they do not go together
Part = tuple[ModuleType, str, dg.Definitions]  # the file, what of it, and as what Dagster gets it


def choose_extras(modules: Sequence[ModuleType], merge: Merge) -> tuple[list[dg.Definitions], dict[ModuleType, str]]:
    """What goes together; file -> what of it does not, and why. The eldest file stands first in `modules`."""
    fits: list[Part] = []
    left: list[Part] = []
    why: dict[ModuleType, list[str]] = {}
    for module in modules:
        try:
            own = load_file(module)
        except Exception as error:
            why[module] = [f"what it declares for Dagster is left out: {flatten(error)}"]
            continue
        whole = (module, "", own)
        left += _add(fits, list(_split(module, own)), merge) if _add(fits, [whole], merge) else []
    while len(again := _add(fits, left, merge)) < len(left):  # a file may need what a younger one declares
        left = again
    for module, name, part in left:
        said, other = _find_cause(module, part, modules, fits, merge)
        there = f", for {other} has it" if other else ""
        why.setdefault(module, []).append(f"its {name} is left out{there}: {said}")
    return [own for _, _, own in fits], {module: "; ".join(said) for module, said in why.items()}


def flatten(error: Exception) -> str:
    """What Dagster says, in one line."""
    return " ".join(f"{error} {error.__cause__ or ''}".split())


def _explain(merge: Merge, own: Sequence[dg.Definitions]) -> str:
    """Why Dagster does not take these together; empty if it does."""
    try:
        merge(own)
    except Exception as error:
        return flatten(error) or type(error).__name__
    return ""


def _add(fits: list[Part], parts: Sequence[Part], merge: Merge) -> list[Part]:
    """Puts each part that fits to the others; the rest is returned."""
    left: list[Part] = []
    for part in parts:
        (left if _explain(merge, [own for _, _, own in (*fits, part)]) else fits).append(part)
    return left


def _find_cause(
    module: ModuleType, part: dg.Definitions, modules: Sequence[ModuleType], fits: Sequence[Part], merge: Merge
) -> tuple[str, str]:
    """Why Dagster does not take it, and the file with which it collides; none where it is wrong by itself."""
    if alone := _explain(merge, [part]):
        return alone, ""
    for other in modules:
        theirs = [own for at, _, own in fits if at is other]
        if other is not module and (said := _explain(merge, [*theirs, part])):
            return said, str(other.__file__)
    return _explain(merge, [*(own for _, _, own in fits), part]), ""


def _split(module: ModuleType, own: dg.Definitions) -> Iterator[Part]:
    """Each thing by itself, with all resources of its file: what needs one of them takes no other file's."""
    for field in ("assets", "asset_checks", "jobs", "schedules", "sensors"):
        for one in getattr(own, field) or ():
            kind = field.removeprefix("asset_").removesuffix("s")
            alone: dict[str, Any] = {field: [one], "resources": own.resources}
            yield module, f"{kind} {_name(one)}", dg.Definitions(**alone)
    if own.resources:
        yield module, f"resource {', '.join(own.resources)}", dg.Definitions(resources=own.resources)


def _name(one: object) -> str:
    if isinstance(one, dg.AssetChecksDefinition):
        return ", ".join(f"{key.asset_key.to_user_string()}:{key.name}" for key in one.check_keys)
    if isinstance(one, (dg.AssetsDefinition, dg.AssetSpec, dg.SourceAsset)):
        return ", ".join(key.to_user_string() for key in list_keys([one]))
    return str(getattr(one, "name", one))
