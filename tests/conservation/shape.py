"""Types and columns as DDL can declare them, and schemas drawn at random."""

import random
from dataclasses import dataclass

WHOLE = {"byte": 8, "short": 16, "int": 32, "long": 64}
FLAT = (*WHOLE, "float", "double", "decimal", "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
NESTED = ("struct", "array", "map")
PLAIN_NAMES = ("id", "name", "amount", "at", "shop", "value", "flag", "note", "ratio", "day", "code", "city", "x", "y")
ODD_NAMES = (
    "a b", "a.b", "a`b", "naïve", "日本", "😀", "Mixed Case", "SELECT", "1st", "x-y", "a:b", 'q"q', "it's", "per%cent",
    "a/b", "a\\b", "_x", "a+b", "ß", "#n", "$", "a.b.c", "İ", "a,b", "k=v", "{b}", "(p)", "p;q",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """A type of Spark; `parts` are a struct's fields, an array's element or a map's value, and `key` is a map's."""

    kind: str
    precision: int = 0
    scale: int = 0
    parts: "tuple[tuple[str, Type], ...]" = ()
    key: str = "string"

    def ddl(self) -> str:
        match self.kind:
            case "decimal":
                return f"decimal({self.precision},{self.scale})"
            case "struct":
                return f"struct<{', '.join(f'{quote(n)}: {t.ddl()}' for n, t in self.parts)}>"
            case "array":
                return f"array<{self.parts[0][1].ddl()}>"
            case "map":
                return f"map<{self.key}, {self.parts[0][1].ddl()}>"
        return self.kind


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type


Schema = tuple[Column, ...]


def quote(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def ddl(schema: Schema) -> str:
    return ", ".join(f"{quote(c.name)} {c.type.ddl()}" for c in schema)


def draw_schema(draw: random.Random, nested: bool, without: str = "", keys: tuple[str, ...] = ("string",)) -> Schema:
    """1 to 12 columns; every type but `without` may come anywhere, maps have such `keys`, and one name in three is odd."""
    flat = [kind for kind in (*FLAT, "string", "int", "long") if kind != without]
    count = min(draw.randint(1, 12), draw.randint(1, 12))
    names: dict[str, str] = {}
    while len(names) < count:
        pool = ODD_NAMES if draw.random() < 0.33 else PLAIN_NAMES
        name = draw.choice(pool)
        if draw.random() < 0.2:
            name = f"{name}{draw.randint(0, 9)}"
        names.setdefault(name.lower(), name)
    return tuple(Column(n, _type(draw, flat, keys, 2 if nested else 0)) for n in names.values())


def _type(draw: random.Random, flat: list[str], keys: tuple[str, ...], depth: int) -> Type:
    if depth and draw.random() < 0.2:
        kind = draw.choice(NESTED)
        if kind == "struct":
            some = draw.sample(PLAIN_NAMES, draw.randint(1, 3))
            return Type("struct", parts=tuple((n, _type(draw, flat, keys, depth - 1)) for n in some))
        key = draw.choice(keys) if kind == "map" and len(keys) > 1 else "string"
        return Type(kind, parts=(("", _type(draw, flat, keys, depth - 1)),), key=key)
    kind = draw.choice(flat)
    if kind == "decimal":
        precision = draw.choice((1, 5, 9, 10, 18, 19, 38, draw.randint(1, 38)))
        return Type("decimal", precision, draw.choice((0, precision, draw.randint(0, precision))))
    return Type(kind)
