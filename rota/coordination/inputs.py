"""What operators, pipeline files and sources put into a decision. The controller keeps it; the next decision reports the
difference.

Laws: `explain_changes` is a pure function. Inputs of the same workers that differ give at least one sentence, equal ones
give none. At most `MAX_NAMED` changes of a kind are named. The inputs stay small beside the memory of an assignor.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Any

from rota.coordination.records import GroupOverrides, Live, Meta, Partitions, WorkerOverrides
from rota.coordination.views import LiveView
from rota.errors import counted

KEY = "inputs"  # key in the controller's memory
SETTINGS = ("protocol", "assignor", "options", "budget", "cooldown", "grace")
MAX_PINS = 1_000  # of more pins only a digest is kept
MAX_NAMED = 5
MAX_TEXT = 60  # characters of a value in a sentence
FACTS = {  # a fact of a worker: the sentence when it begins, and when it ends
    "leaving": ("is shutting down", ""),  # it ends with the worker
    "unable": ("cannot work", "can work again"),
    "unreadable": ("has a record that cannot be read", "has readable records again"),
}

Inputs = Mapping[str, Any]  # JSON values


def note_inputs(
    meta: Meta,
    overrides: GroupOverrides,
    people: Mapping[str, WorkerOverrides],
    live: Mapping[str, LiveView],
    unreadable: Iterable[str],
    pipelines: Mapping[str, Partitions],
) -> Inputs:
    """The inputs as JSON values. `people` are the overrides by worker; those of workers that are not live do not count."""
    pins = dict(overrides.pins)
    return {
        "settings": meta.model_dump(include=set(SETTINGS)),
        "paused": overrides.paused,
        "pins": pins if len(pins) <= MAX_PINS else sha256(json.dumps(sorted(pins.items())).encode()).hexdigest(),
        "workers": {
            name: _note_worker(view, people.get(name), name in unreadable) for name, view in sorted(live.items())
        },
        "pipelines": {
            name: {"partitions": len(record.keys), "requires": dict(record.requires)}
            for name, record in sorted(pipelines.items())
        },
    }


def _note_worker(view: LiveView, people: WorkerOverrides | None, unreadable: bool) -> dict[str, Any]:
    """What distinguishes the worker from one without overrides that can work."""
    overrides, live = people or WorkerOverrides(), view.record or Live()
    state = "draining" if overrides.draining else "cordoned" if overrides.cordoned else ""
    facts: dict[str, Any] = {"state": state, "leaving": live.leaving, "unable": bool(live.unable)}
    facts["unreadable"] = unreadable or view.record is None
    given = overrides.model_dump(include={"capacity", "labels", "max_partitions"}, exclude_defaults=True)
    return {name: value for name, value in facts.items() if value} | given


def explain_changes(before: Inputs | None, after: Inputs) -> tuple[str, ...]:
    """How the inputs differ, a sentence each, such as "w2 is uncordoned". Empty if those before are unknown."""
    if before is None or before.keys() != after.keys():
        return ()
    return (
        *_cut(_explain_workers(before["workers"], after["workers"]), "workers"),
        *_explain_pins(before["pins"], after["pins"]),
        *(
            [f"voluntary moves are {'paused' if after['paused'] else 'resumed'}"]
            * (before["paused"] != after["paused"])
        ),
        *(f"the {change}" for change in _compare(before["settings"], after["settings"])),
        *_cut(_explain_pipelines(before["pipelines"], after["pipelines"]), "pipelines"),
    )


def _explain_workers(before: Inputs, after: Inputs) -> Iterator[str]:
    for worker, now in after.items():
        was = before.get(worker, {})
        if was.get("state") != now.get("state"):
            yield f"{worker} is {now.get('state', 'uncordoned')}"
        for fact, (begins, ends) in FACTS.items():
            if was.get(fact) != now.get(fact) and (said := begins if fact in now else ends):
                yield f"{worker} {said}"
        for change in _compare(*({k: v for k, v in one.items() if k not in {"state", *FACTS}} for one in (was, now))):
            yield f"{worker}: the {change}"


def _explain_pins(before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, str) or isinstance(after, str):
        yield from ["the pins changed"] * (before != after)
        return
    changed = (p for p in sorted({*before, *after}) if before.get(p) != after.get(p))
    said = (f"{p} is pinned to {after[p]}" if p in after else f"{p} is no longer pinned" for p in changed)
    yield from _cut(said, "pins")


def _explain_pipelines(before: Inputs, after: Inputs) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"pipeline {name} left the group"
            continue
        count = after[name]["partitions"]
        if name not in before:
            yield f"pipeline {name} came with {counted(count, 'partition')}"
            continue
        if more := count - before[name]["partitions"]:
            yield f"{counted(abs(more), 'partition')} {'came to' if more > 0 else 'left'} pipeline {name}"
        required = ({"required labels": one[name]["requires"]} for one in (before, after))
        yield from (f"pipeline {name}: {change}" for change in _compare(*required))


def _compare(before: Inputs, after: Inputs) -> Iterator[str]:
    """`NAME changed from X to Y` for each value that differs."""
    for name in sorted({*before, *after}):
        was, now = (_format(one.get(name)) for one in (before, after))
        if before.get(name) != after.get(name):
            yield f"{name} changed from {was} to {now}"


def _format(value: Any) -> str:
    text = "none" if value in (None, {}) else value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."


def _cut(said: Iterable[str], what: str) -> list[str]:
    """The first `MAX_NAMED` sentences, and how many more there are."""
    listed = list(said)
    more = len(listed) - MAX_NAMED
    return listed if more <= 0 else [*listed[:MAX_NAMED], f"and {more} more changes of {what}"]
