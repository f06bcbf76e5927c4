"""What a line of JSON means under a schema; every rule of `rules` that is JSON's alone."""

import json
import re
from collections.abc import Callable

from tests.conservation import rules
from tests.conservation.canonical import fold
from tests.conservation.rules import Bad, Unclear, Value
from tests.conservation.shape import WHOLE, Schema, Type

INFINITE = {"+INF": "inf", "+Infinity": "inf", "Infinity": "inf", "-INF": "-inf", "-Infinity": "-inf", "NaN": "nan"}
LONGEST_NUMBER = 1000
BLANK = " \t\r\n"
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character
Row = tuple[Value, ...]


class Number:
    """A number as it is written."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


class Whole(Number):
    __slots__ = ()


class Fields(list[tuple[str, object]]):
    """An object: its fields in order, doubles and all."""


DEEPEST = 1000  # levels of values that Spark's parser takes
DECODER = json.JSONDecoder(object_pairs_hook=Fields, parse_int=Whole, parse_float=Number, parse_constant=Number)


def measure_depth(line: str) -> int:
    """How many values stand within each other at most; of few lines it is asked, for most are short of brackets."""
    if line.count("[") + line.count("{") <= DEEPEST - 100:
        return 0
    depth = deepest = 0
    for mark in re.findall(r'"(?:[^"\\]|\\.)*"|[\[{\]}]', line):
        depth += (mark in "[{") - (mark in "]}")
        deepest = max(deepest, depth)
    return deepest


class Lines:
    """Reads the records of one schema."""

    def __init__(self, schema: Schema) -> None:
        self.names = {c.name: i for i, c in enumerate(schema)}
        self.values = [_rule(c.type) for c in schema]
        self.texts = frozenset(c.name for c in schema if c.type.kind == "string")

    def rows(self, line: str) -> list[Row]:
        """The rows of a line: one, or those of a list. Raises Bad, Unclear."""
        if (deepest := measure_depth(line)) > DEEPEST - 100:
            raise Bad("nested too deep") if deepest > DEEPEST else Unclear
        try:
            found, end = DECODER.raw_decode(line, len(line) - len(line.lstrip(BLANK)))
        except RecursionError:
            raise Unclear from None
        except ValueError:
            if "'" in line or "INF" in line or "+Inf" in line:
                raise Unclear from None  # Spark takes single quotes, and more words for the infinite
            raise Bad("no JSON") from None
        rows = self._found(found, line)
        if rest := line[end:].strip(BLANK):
            raise Unclear if rest == "," else Bad("something follows")
        return rows

    def _found(self, found: object, line: str) -> list[Row]:
        if type(found) is Fields:
            return [self._row(found, line)]
        if type(found) is not list or not all(type(one) is Fields for one in found):
            raise Bad("no object")
        if self.texts and any(type(v) in (list, Fields) for one in found for k, v in one if k in self.texts):
            raise Unclear
        return [self._row(one, line) for one in found]

    def _row(self, fields: Fields, line: str) -> Row:
        row: list[Value] = [None] * len(self.values)
        unclear = False
        for name, value in fields:
            at = self.names.get(name)
            if at is None:
                continue
            if value is None:
                row[at] = None
            elif name in self.texts and type(value) in (list, Fields):
                row[at] = _slice(line, name, fields)
            else:
                try:
                    row[at] = self.values[at](value)
                except Unclear:
                    unclear = True
        if unclear:
            raise Unclear
        return tuple(row)


def _slice(line: str, wanted: str, fields: Fields) -> Value:
    """The text of a list or an object, for a column of strings."""
    if sum(name == wanted for name, _ in fields) > 1:
        raise Unclear
    at = line.index("{") + 1
    for _ in fields:
        at = _past(line, at, ",")
        name, at = json.decoder.scanstring(line, at + 1)
        at = _past(line, at, ":")
        _, end = DECODER.raw_decode(line, at)
        if name == wanted:
            return fold(line[at:end])
        at = end
    raise Unclear


def _past(line: str, at: int, mark: str) -> int:
    while line[at] in BLANK or line[at] == mark:
        at += 1
    return at


def _rule(kind: Type) -> Callable[[object], Value]:
    """The rule for a value that is not null."""
    match kind.kind:
        case "struct":
            return _struct(kind)
        case "array":
            return _array(kind)
        case "map":
            return _map(kind)
        case "string":
            return _string
        case "boolean":
            return _boolean
        case "float" | "double":
            return _remember(_real(kind.kind == "float"))
        case "decimal":
            return _remember(_decimal(kind))
        case "timestamp":
            return _remember(_timestamp)
    if kind.kind in WHOLE:
        return _whole(kind.kind)
    texts: dict[str, Callable[[str], Value]] = {
        "binary": lambda text: fold(rules.binary(text)),
        "date": rules.date,
        "timestamp_ntz": lambda text: rules.moment(text, False),
    }
    return _remember(_text(texts[kind.kind]))


def _remember(rule: Callable[[object], Value]) -> Callable[[object], Value]:
    """The rule, which is asked once for each text: a file has few."""
    known: dict[tuple[type, str], Value] = {}

    def look(value: object) -> Value:
        text = value.text if isinstance(value, Number) else value
        if type(text) is not str:
            return rule(value)
        key = type(value), text
        if key not in known:
            known[key] = rule(value)
        return known[key]

    return look


def _whole(kind: str) -> Callable[[object], Value]:
    bits = WHOLE[kind]

    def rule(value: object) -> Value:
        if type(value) is not Whole:
            raise Bad("of another type")
        return rules.whole(value.text, bits)

    return rule


def _real(single: bool) -> Callable[[object], Value]:
    def rule(value: object) -> Value:
        if isinstance(value, Number):
            if len(value.text) > LONGEST_NUMBER:
                raise Bad("too long")
            return rules.round_text(INFINITE.get(value.text, value.text), single)
        if type(value) is str and value in INFINITE:
            return rules.round_text(INFINITE[value], single)
        raise Bad("of another type")

    return rule


def _decimal(kind: Type) -> Callable[[object], Value]:
    def rule(value: object) -> Value:
        text = value.text if isinstance(value, Number) else value
        if type(text) is not str:
            raise Bad("of another type")
        return rules.decimal(text, kind)

    return rule


def _boolean(value: object) -> Value:
    if type(value) is not bool:
        raise Bad("of another type")
    return value


def _string(value: object) -> Value:
    if type(value) is str:
        return value if value.isascii() else fold(SURROGATE.sub("?", value))
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, Number):
        if len(value.text) > LONGEST_NUMBER:
            raise Unclear
        return value.text
    raise Unclear  # a list or an object that is not in a column of its own


def _text(rule: Callable[[str], Value]) -> Callable[[object], Value]:
    def check(value: object) -> Value:
        if type(value) is not str:
            raise Bad("of another type")
        return rule(value)

    return check


def _timestamp(value: object) -> Value:
    """A whole number is seconds."""
    if type(value) is Whole:
        micros = rules.whole(value.text, 64) * 1_000_000
        if not -(1 << 63) <= micros < 1 << 63:
            raise Unclear  # Spark lets it overflow
        return micros
    if type(value) is not str:
        raise Bad("of another type")
    return rules.moment(value, True)


def _struct(kind: Type) -> Callable[[object], Value]:
    places = {name: i for i, (name, _) in enumerate(kind.parts)}
    parts = [_rule(part) for _, part in kind.parts]

    def rule(value: object) -> Value:
        if type(value) is not Fields:
            raise Bad("of another type")
        found: list[Value] = [None] * len(parts)
        for name, one in value:
            if name in places:
                found[places[name]] = None if one is None else parts[places[name]](one)
        return tuple(found)

    return rule


def _array(kind: Type) -> Callable[[object], Value]:
    part = _rule(kind.parts[0][1])

    def rule(value: object) -> Value:
        if type(value) is not list:
            raise Bad("of another type")
        return tuple(None if one is None else part(one) for one in value)

    return rule


def _map(kind: Type) -> Callable[[object], Value]:
    part = _rule(kind.parts[0][1])

    def rule(value: object) -> Value:
        if type(value) is not Fields:
            raise Bad("of another type")
        pairs = tuple((_string(name), None if one is None else part(one)) for name, one in value)
        if len({name for name, _ in pairs}) < len(pairs):
            raise Unclear
        return pairs

    return rule
