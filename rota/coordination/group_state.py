"""A group's records, changed by compare-and-set. The group is founded once. Reads are in `group_reader`.

Laws:
1. No reader ever sees half a group: one multi creates all of it.
2. A change is computed from what was read, and written at the version that was read. A lost change is computed again.
3. An unreadable record is never changed: Undecodable.
"""

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from rota.coordination.group_reader import GroupReader
from rota.coordination.limits import split_fitting
from rota.coordination.records import Controller, GroupOverrides, Head, Meta, Partitions, Record, Refusals, encode
from rota.coordination.store import RECONNECTING, Check, Create, Set, settle
from rota.errors import ConfigError, Conflict, Undecodable, Unknown

R = TypeVar("R", bound=Record)
COMPARES = 20  # of a compare-and-set before its Conflict is the caller's


class GroupState(GroupReader):
    """The records of one group, for writers; see the laws of the module."""

    def found(
        self,
        assignor: str | None = None,
        options: Mapping[str, object] | None = None,
        **policy: object,
    ) -> Meta:
        """Founds the group if it does not exist. Given settings (also budget, cooldown, grace) replace the stored ones."""
        given = {"assignor": assignor, "options": options}
        wanted = {k: v for k, v in given.items() if v is not None} | policy
        self.store.wait_active(RECONNECTING)
        if not self.exists():
            self._found(wanted)
        seen = self.read(self.paths.meta, Meta)
        if seen is None:
            raise self._missing()
        changed = _meta(seen.record.model_dump() | wanted)
        if changed.protocol != "assigned":
            self.store.ensure(self.paths.grabs)  # a group that an older rota founded has none
        if changed != seen.record:
            return self.update(self.paths.meta, Meta, lambda now: _meta((now or changed).model_dump() | wanted))
        return seen.record

    def _found(self, wanted: Mapping[str, object]) -> None:
        """Creates everything in one multi, so that no reader sees half a group.

        A group that lost only its meta gets another one, with an id that its tables refuse until they are adopted.
        """
        meta = _meta({"id": secrets.token_hex(16), **_at(self.levels.lowest), **wanted})
        records: dict[str, Record] = {
            self.paths.meta: meta,
            self.paths.overrides: GroupOverrides(),
            self.paths.controller: Controller(),
            self.paths.head: Head(),
            self.paths.refused: Refusals(),
        }
        self.store.ensure(self.paths.root)
        ops = [Create(p) for p in self.paths.folders] + [Create(p, encode(r)) for p, r in records.items()]
        for attempt in range(COMPARES):
            try:
                self.store.multi(ops)
            except Conflict as conflict:
                if conflict.cause != "exists":
                    raise
                if not self.exists():
                    ops = [Create(self.paths.meta, encode(meta.model_copy(update=_at(self.levels.level))))]
                    continue
            except Unknown:
                if attempt == COMPARES - 1:
                    raise
                settle(self.store)
                continue
            return

    def update(
        self,
        path: str,
        model: type[R],
        change: Callable[[R | None], R],
        checks: Sequence[Check] = (),
    ) -> R:
        """Sets the record to `change(record)` by compare-and-set, again after each lost race. None: the record does not
        exist.

        `change` must be safe to repeat: after a lost reply the record is read and changed again. `checks` must hold at
        the instant of the write, or nothing is written: raises Conflict. Raises Undecodable.
        """
        self.store.wait_active(RECONNECTING)
        for attempt in range(COMPARES):
            node = self.store.get(path)
            seen = None if node is None else self._decode(path, model, node)
            if isinstance(seen, Undecodable):
                raise seen
            record = change(seen)
            if seen == record:
                return record
            data = encode(record)
            try:
                self.store.multi([*checks, Create(path, data) if node is None else Set(path, data, node.version)])
            except (Conflict, Unknown) as error:
                final = isinstance(error, Conflict) and (error.path != path or (error.cause, node) == ("missing", None))
                if attempt == COMPARES - 1 or final:
                    raise
                settle(self.store)
            else:
                return record
        raise AssertionError("not reached")

    def put(self, path: str, record: R) -> R:
        """Writes the record, whatever it was before; it carries the unknown fields. Raises Undecodable if it cannot be
        read.
        """
        return self.update(path, type(record), record.carry)

    def grow(self, pipeline: str, keys: Iterable[str], requires: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Adds the keys to the pipeline's, in order as far as there is room. Returns the new keys.

        Raises ConfigError on a bad key and, after adding the others, with those above 100,000 in the group or above
        what one worker could hold.
        """
        fresh, excess = split_fitting(self, pipeline, keys)

        def grown(now: Partitions | None) -> Partitions:
            now = now or Partitions()
            together = tuple(sorted({*now.keys, *fresh}, key=str.encode))
            wanted = now.requires if requires is None else dict(requires)
            return now.model_copy(update={"keys": together, "requires": wanted})

        self.update(self.paths.pipeline(pipeline), Partitions, grown)
        if excess:
            raise ConfigError(excess)
        return fresh


def _at(level: int) -> dict[str, object]:
    return {"level": level, "floor": level}


def _meta(fields: Mapping[str, object]) -> Meta:
    try:
        return Meta(**fields)  # type: ignore[arg-type]
    except ValueError as error:
        raise ConfigError(
            f"Bad settings of the group: {' '.join(str(error).split())[:300]}. Mend its Group(...)"
        ) from None
