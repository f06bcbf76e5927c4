"""The grammar of every name that users and programs share: partition ids, incarnations, runs' nodes, asset keys.

A partition id is `<pipeline>:<key>`. The first colon splits it, because no name of a pipeline contains a colon. The key
is the source's name of the partition: `flights:AA`, `mine:shop=1`, `mine:shop=Café Zürich`. Znodes, the column
`_partition`, Delta transactions, Dagster's partition keys and all output use the same text.

Laws:
1. `unescape(escape(name)) == name` for every file name, and no two names share a key. Nothing is normalised: the two
   ways to write é are two keys.
2. A key is printable text on one line that ZooKeeper, Dagster and Delta accept unchanged. Only other characters are
   escaped: a byte becomes `%` and two upper-case hex digits. Escaped are `%` itself; `/` (it ends a znode's name); `,`
   `|` `[` `]` and three dots or more in a row (Dagster reads them as lists and ranges); a blank at either end or after
   a blank; each character that is no letter, mark, digit, sign or blank of Unicode 3.2; and characters above U+FFEF
   (ZooKeeper refuses them).
3. The result is the same in every Python: Unicode 3.2 never changes.
4. An id has at most 120 bytes of UTF-8: its hex form names a folder.
"""

import re
import shlex
from functools import lru_cache
from unicodedata import ucd_3_2_0
from urllib.parse import unquote_to_bytes

from rota.errors import ConfigError, shown

MAX_PARTITION = 120  # bytes of a partition id in UTF-8
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # of a group, pipeline, worker or run
LIVENESS_SUFFIX = "=going"  # ends the name of a run's liveness node; no other node there has a "="
ERROR_KIND = "error"  # metadata of a run's failed step: the kind of an expected error
WORKER_TAG, REBALANCE_TAG = "rota/worker", "rota/rebalance"  # tags of launched runs: the worker; the group
HAPPENED, MOVES, MOVED = "what happened", "moves", "partitions moved"  # metadata of an epoch that commands read back
PLACED, EPOCH = "partitions that had no owner", "epoch"  # the same
PARKED_TAG = "rota/parked"  # tag of a run that failed only for its parked partitions: their number
WAITING = "=waiting"  # ends the name of a node of a process that waits; no incarnation has a "="
_SEEN = r"[!-$&-+\-.0-Z\\^-{}~]"  # the ASCII of a key but the blank
_ASCII_KEY = re.compile(rf"{_SEEN}+(?: {_SEEN}+)*")
_ASCII_PARTITION = re.compile(rf"{NAME.pattern}:{_SEEN}+(?: {_SEEN}+)*")
_IN_PLACE = re.compile(r"\.{3,}|\A | \Z|(?<= ) ")  # plain characters that are escaped because of their position
_ESCAPED = frozenset("%/,|[]\u00ad")  # U+00AD: the soft hyphen, a sign in Unicode 3.2
_PLANE = "\ufff0"  # ZooKeeper takes no character from here on
_INCARNATION = re.compile(rf"(?P<id>{NAME.pattern})@(?P<session>[0-9a-f]{{16}})")


# --- names


@lru_cache(maxsize=1 << 12)
def is_id(text: str) -> bool:
    """Return whether the text names a group, pipeline, worker or run."""
    return NAME.fullmatch(text) is not None


def checked_id(kind: str, text: object) -> str:
    """Return `text` if it names a group, pipeline, worker or run. Raises ConfigError otherwise, before any I/O."""
    if isinstance(text, str) and is_id(text):
        return text
    raise ConfigError(
        f"Bad {kind} id {shown(text)}: an id starts with a letter or digit and goes on with up to 127 of A-Z a-z 0-9 . _ -"
    )


# --- partitions


def partition_id(pipeline: str, key: str) -> str:
    """Return `<pipeline>:<key>`, unchecked."""
    return f"{pipeline}:{key}"


def pipeline_of(partition: str) -> str:
    """Return the pipeline of a partition id."""
    return partition.partition(":")[0]


def key_of(partition: str) -> str:
    """Return the key of a partition id."""
    return partition.partition(":")[2]


@lru_cache(maxsize=1 << 15)  # the same ids are checked again and again
def is_partition(text: str) -> bool:
    """Return whether the text is a partition id."""
    if len(text) > MAX_PARTITION or "..." in text:
        return False
    if _ASCII_PARTITION.fullmatch(text):
        return True
    pipeline, _, key = text.partition(":")
    return is_id(pipeline) and is_key(key) and len(text.encode()) <= MAX_PARTITION


def checked_partition(text: object) -> str:
    """Return `text` if it is a partition id. Raises ConfigError otherwise, before any I/O."""
    if isinstance(text, str) and is_partition(text):
        return text
    raise ConfigError(
        f"Bad partition id {shown(text)}: it is PIPELINE:KEY, printable, in at most {MAX_PARTITION} bytes; "
        f"`rota status` shows those that there are"
    )


def quote(partition: str) -> str:
    """Return the partition id, quoted for a shell."""
    return shlex.quote(partition)


def is_key(text: str) -> bool:
    """Return whether the text is the key of some name."""
    if _ASCII_KEY.fullmatch(text) and "..." not in text:
        return True
    try:
        return bool(text) and escape(_unescaped(text)) == text
    except UnicodeEncodeError:
        return False


def rename_id(partition: str, old: str, new: str) -> str:
    """Return the partition's id after its pipeline `old` was renamed to `new`."""
    return partition_id(new, key_of(partition)) if pipeline_of(partition) == old else partition


def is_partition_or_key(text: str) -> bool:
    """Return whether the text is a partition id or a key; fast, for sets of many."""
    if len(text) <= MAX_PARTITION and _ASCII_KEY.fullmatch(text) and "..." not in text:
        return True
    return is_partition(text) or (is_key(text) and len(text.encode()) <= MAX_PARTITION)


def escape(name: str) -> str:
    """Return the key for a source's name of a partition; see law 2. Raises ConfigError for text that cannot name a
    file.
    """
    if _ASCII_KEY.fullmatch(name) and "..." not in name:
        return name
    there = {place for found in _IN_PLACE.finditer(name) for place in range(*found.span())}
    try:
        return "".join(c if place not in there and _plain(c) else _percent(c) for place, c in enumerate(name))
    except UnicodeEncodeError:
        raise ConfigError(f"{shown(name)} names no partition: it is no Unicode text. Give it another name") from None


def unescape(key: str) -> str:
    """Return the name of a key. Raises ConfigError for text that is no key."""
    if not is_key(key):
        raise ConfigError(f"Bad key {shown(key)} of a partition: no name is written so. `rota status` shows the keys")
    return _unescaped(key)


def _unescaped(key: str) -> str:
    return unquote_to_bytes(key).decode("utf-8", "surrogateescape")


def _percent(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "surrogateescape"))


@lru_cache(maxsize=8192)
def _plain(letter: str) -> bool:
    shows = letter == " " or ucd_3_2_0.category(letter)[0] in "LMNPS"
    return shows and letter < _PLANE and letter not in _ESCAPED


# --- incarnations and runs


def incarnation_of(worker: str, session: int) -> str:
    """Return `<worker>@<session as 16 hex>`: one life of a worker, never used again."""
    return f"{checked_id('worker', worker)}@{_hex(session)}"


@lru_cache(maxsize=1 << 12)
def is_incarnation(text: str) -> bool:
    """Return whether the name is an incarnation; other names below `live` are foreign."""
    return _INCARNATION.fullmatch(text) is not None


@lru_cache(maxsize=1 << 12)
def parse_incarnation(text: str) -> tuple[str, int]:
    """Return the worker (or run) and the session of an incarnation. Raises ConfigError."""
    match = _INCARNATION.fullmatch(text)
    if match is None:
        raise ConfigError(f"Bad incarnation {text[:160]!r}: it is <worker>@<session as 16 hex digits>")
    session = int(match["session"], 16)
    return match["id"], session - (1 << 64) if session >> 63 else session


def checked_incarnation(text: str) -> str:
    """Return `text` if it is an incarnation. Raises ConfigError otherwise."""
    parse_incarnation(text)
    return text


def worker_of(incarnation: str) -> str:
    """Return the worker of an incarnation."""
    return incarnation.rpartition("@")[0]


def run_node(incarnation: str, run_id: str, session: int) -> str:
    """Return `<incarnation>@<run id>@<session as 16 hex>`: the name of a run's node contains the incarnation for which
    it works.
    """
    return f"{checked_incarnation(incarnation)}@{checked_id('run', run_id)}@{_hex(session)}"


@lru_cache(maxsize=1 << 12)
def is_run(text: str) -> bool:
    """Return whether the name is that of a run's node; other names below `runs` are foreign."""
    parts = text.split("@")
    return len(parts) == 4 and is_incarnation("@".join(parts[:2])) and is_incarnation("@".join(parts[2:]))


def parse_run(text: str) -> tuple[str, str, int]:
    """Return the incarnation that a run's node names, the run's id and its session. Raises ConfigError."""
    worker, session, run = text.split("@", 2)
    return f"{worker}@{session}", *parse_incarnation(run)


def _hex(session: int) -> str:
    return f"{session & 0xFFFF_FFFF_FFFF_FFFF:016x}"


# --- Dagster


def asset_key(of: str, kind: str) -> tuple[str, str]:
    """Return `<group or pipeline>/<kind>`, for example `flights/records`. A kind belongs to groups or to pipelines,
    never to both.
    """
    return of, kind


def partition_set(pipeline: str) -> str:
    """Return the name of the set whose partition keys are the pipeline's partition ids."""
    return f"{pipeline}/partitions"


def dagster_name(*parts: str) -> str:
    """Return the parts as the name of a sensor, job or op: `dagster_name("eu-west", "membership") ==
    "eu_2dwest__membership"`.

    Dagster allows `[A-Za-z0-9_]`; rota's names may also have `-` and `.`, which become `_2d` and `_2e`. An `_` that
    could be taken for one of them becomes `_5f`. So two lists of names never share a Dagster name.
    """
    return "__".join(re.sub(r"[-.]|_(?=2d|2e|5f)", lambda m: f"_{ord(m[0]):02x}", part) for part in parts)


def split_dagster_name(name: str) -> tuple[str, ...]:
    """Return the parts of a name that `dagster_name` made, if no `_` in them precedes a `-`, a `.` or another `_`."""
    return tuple(re.sub(r"_(2d|2e|5f)", lambda m: chr(int(m[1], 16)), part) for part in name.split("__"))
