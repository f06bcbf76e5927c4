"""Cases out of one whole number: the same number makes the same bytes. Most records are plain; damage is rare and
everywhere."""

import bz2
import gzip
import io
import json
import random
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conservation import pools, transforms
from tests.conservation.case import Case, File
from tests.conservation.shape import Column, Schema, Type, drawn

FILES = 20
POOL = 40
ARROW = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
NARROW = {"int": (pa.int8(), pa.int16(), pa.uint8()), "long": (pa.int32(), pa.int16()), "short": (pa.int8(),)}


def case(seed: int, number: int, files: int = FILES) -> Case:
    """The case of this number. Some 200 records a file."""
    draw = random.Random(f"{seed} {number}")
    format = draw.choice(("csv", "csv", "json", "json", "parquet"))
    schema = drawn(
        draw, format != "csv", "byte" if format == "json" else ""
    )  # that is refused: Spark takes 200 for -56
    options = _csv_options(draw) if format == "csv" else {}
    suffix = {"csv": ".csv", "json": draw.choice((".json", ".jsonl", "")), "parquet": ".parquet"}[format]
    keys = ["a", "b=1", "ü c", "d%"][: draw.randint(2, 4)]
    made = {"csv": _csv, "json": _json, "parquet": _parquet}[format](draw, schema, options)
    broken = -1
    if draw.random() < 0.06:
        files = min(files, 6)  # whoever looks for the broken one reads the others again and again
        broken = draw.randrange(files)
    found = []
    for n in range(files):
        data = made(_count(draw))
        name = f"{n:03}{suffix}"
        if format != "parquet":
            data, name = _packed(draw, data, name)
        if n == broken:
            data, name = _broken(draw, format, data, name)
        found.append(File(draw.choice(keys), name, data))
    ratio = draw.choice((0.0, 0.02, 0.1)) if draw.random() < 0.08 else 1.0
    return Case(
        f"--seed {seed}, case {number}", format, schema, options, ratio, tuple(found), transforms.drawn(draw, schema)
    )


def _count(draw: random.Random) -> int:
    return draw.choice((0, 1, 2, 3)) if draw.random() < 0.1 else draw.randint(50, 370)


def _packed(draw: random.Random, data: bytes, name: str) -> tuple[bytes, str]:
    chance = draw.random()
    if chance < 0.1:
        return gzip.compress(data, 1, mtime=0), f"{name}.gz"
    return (bz2.compress(data, 1), f"{name}.bz2") if chance < 0.13 else (data, name)


def _broken(draw: random.Random, format: str, data: bytes, name: str) -> tuple[bytes, str]:
    """A file that fails as a whole."""
    if format == "json" and b"}\n{" in data and draw.random() < 0.5:
        return data.replace(b"}\n{", draw.choice((b"}{", b"} {", b"},{")), 1), name
    if format == "parquet":
        return draw.choice((b"no parquet at all", data[: len(data) // 2] + b"PAR1", b"PAR1")), name
    plain = name.partition(".gz")[0].partition(".bz2")[0]
    whole = gzip.compress(data * 2 + draw.randbytes(200).hex().encode(), 1, mtime=0)
    return draw.choice((whole[: len(whole) // 2], whole[:-30], data[:9] + b"no gzip")), f"{plain}.gz"


def _sprinkled(draw: random.Random, count: int, rate: float) -> list[int]:
    return draw.sample(range(count), min(count, int(count * rate) + (draw.random() < 0.5)))


def _large(draw: random.Random) -> str:
    return draw.choice("xyü") * 100_000


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv_options(draw: random.Random) -> dict[str, str]:
    options = {}
    if draw.random() < 0.5:
        options["header"] = "true"
    if draw.random() < 0.4:
        options["sep"] = draw.choice((";", "\t", "|", "||", "\x01"))
    if draw.random() < 0.2:
        options["quote"] = "'"
    if draw.random() < 0.4:
        options["escape"] = options.get("quote", '"')
    if draw.random() < 0.3:
        options["multiLine"] = "true"
    if draw.random() < 0.3:
        options["nullValue"] = draw.choice(("NULL", "-", "0"))
    return options


def _csv(draw: random.Random, schema: Schema, options: dict[str, str]) -> Callable[[int], bytes]:
    sep, quote = options.get("sep", ","), options.get("quote", '"')
    escape = options.get("escape", "\\")
    spans = options.get("multiLine") == "true"
    null = options.get("nullValue", "")

    def field(text: str, always: bool = False) -> str:
        """Quoted where it must be, and now and then."""
        risky = any(c in text for c in (sep, quote, "\n", "\r")) or text.startswith("\ufeff")
        if not (always or risky):
            return text
        text = text.replace(escape, escape * 2) if escape != quote else text
        return quote + text.replace(quote, escape + quote) + quote

    def pool(column: Column) -> list[str]:
        found = [field(t, draw.random() < 0.1) for t in draw.choices(pools.texts(column.type, draw), k=POOL)]
        if column.type.kind == "string" and spans:
            found += [field("two\nlines"), field(f"a{quote}\r\n{sep}b"), field("\n")]
        return [*found, "", null]

    def odd(column: Column) -> str:
        return field(draw.choice(pools.odd_texts(column.type, draw)), draw.random() < 0.3)

    columns = [pool(c) for c in schema]
    first = [[t for t in one if "\r" not in t and "\n" not in t] for one in columns]  # tells where lines end
    header = sep.join(field(c.name) for c in schema)

    def made(count: int) -> bytes:
        rows = [list(row) for row in zip(*(draw.choices(one, k=count) for one in columns), strict=True)]
        if rows and spans:
            rows[0] = [draw.choice(one) for one in first]
        for n in _sprinkled(draw, count, 0.02):
            at = draw.randrange(len(schema))
            rows[n][at] = odd(schema[at])
        for n in _sprinkled(draw, count, 0.01):
            rows[n] = draw.choice((rows[n][:-1] or ["", ""], [*rows[n], "more"], ["x"] * (len(schema) + 3)))
        if count and draw.random() < 0.02 and (at := _of_kind(schema, "string")) is not None:
            rows[draw.randrange(count)][at] = _large(draw)
        lines = [sep.join(row) for row in rows]
        if draw.random() < 0.1:
            lines.insert(draw.randint(0, len(lines)), "")
        if not spans:
            for n in _sprinkled(draw, len(lines), 0.004):
                lines[n] = _scarred(draw, lines[n], quote)
        if "header" in options:
            lines.insert(0, header if draw.random() < 0.995 else header + sep + "more")
        end = draw.choice(("\n", "\n", "\r\n"))
        data = end.join(lines).encode() + (end.encode() if draw.random() < 0.9 else b"")
        if draw.random() < 0.03:
            data = b"\xef\xbb\xbf" + data
        if not spans:
            data = _hurt(draw, data)
        return data

    return made


def _scarred(draw: random.Random, line: str, quote: str) -> str:
    """A line that another grammar might read."""
    at = draw.randint(0, len(line))
    return line[:at] + draw.choice((quote, "\0", "   ", "\t", "\ufffd", "\r")) + line[at:]


def _hurt(draw: random.Random, data: bytes) -> bytes:
    """Half a line at the end, bytes that are no UTF-8, blank lines."""
    chance = draw.random()
    if chance < 0.04:
        return data[: max(0, len(data) - draw.randint(1, 30))]
    if chance < 0.08 and data:
        at = draw.randrange(len(data))
        return data[:at] + draw.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe9")) + data[at:]
    return data.replace(b"\n", b"\n\n", 3) if chance < 0.11 else data


def _of_kind(schema: Schema, kind: str) -> int | None:
    return next((i for i, c in enumerate(schema) if c.type.kind == kind), None)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _json(draw: random.Random, schema: Schema, options: dict[str, str]) -> Callable[[int], bytes]:
    names = [json.dumps(c.name, ensure_ascii=draw.random() < 0.5) for c in schema]
    columns = [[f"{n}: {pools.literal(c.type, draw)}" for _ in range(POOL)] for n, c in zip(names, schema, strict=True)]
    ends = draw.choice(("\n", "\n", "\n", "\r\n"))

    def odd(at: int) -> str:
        return f"{names[at]}: {pools.odd_literal(schema[at].type, draw)}"

    def made(count: int) -> bytes:
        rows = [list(row) for row in zip(*(draw.choices(one, k=count) for one in columns), strict=True)]
        for n in _sprinkled(draw, count, 0.02):
            at = draw.randrange(len(schema))
            rows[n][at] = odd(at)
        for n in _sprinkled(draw, count, 0.03):
            match draw.randrange(5):
                case 0:
                    draw.shuffle(rows[n])
                case 1:
                    rows[n].pop(draw.randrange(len(rows[n])))
                case 2:
                    rows[n].insert(draw.randint(0, len(rows[n])), draw.choice(('"more": 1', '"other": {"a": [1, {}]}')))
                case 3:
                    rows[n].append(draw.choice(columns[draw.randrange(len(columns))]))
                case 4:
                    rows[n].insert(0, odd(draw.randrange(len(schema))))
        if count and draw.random() < 0.02 and (at := _of_kind(schema, "string")) is not None:
            rows[draw.randrange(count)][at] = f'{names[at]}: "{_large(draw)}"'
        lines = ["{" + ", ".join(row) + "}" for row in rows]
        for n in _sprinkled(draw, count, 0.006):
            lines[n] = _no_object(draw, lines[n], lines[draw.randrange(count)])
        data = ends.join(lines).encode() + (ends.encode() if draw.random() < 0.9 else b"")
        if draw.random() < 0.03:
            data = b"\xef\xbb\xbf" + data
        return _hurt(draw, data)

    return made


def _no_object(draw: random.Random, line: str, other: str) -> str:
    half = line[: draw.randint(0, len(line))]
    return draw.choice(
        (
            *(
                half,
                "null",
                "1",
                '"x"',
                "[]",
                "true",
                f"[{line}]",
                f"[{line}, {other}]",
                f"{line},",
                f"{line}, 7",
                "{}",
            ),
            *(
                "not json",
                f"{half}\0",
                f"  {line}  ",
                "\t",
                f"{line[:-1]},}}",
                "[1]",
                f"[{line}, 5]",
                line.replace('"', "'"),
            ),
            f"{half}{other}",
        )
    )


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet(draw: random.Random, schema: Schema, options: dict[str, str]) -> Callable[[int], bytes]:
    columns = [pa.array([pools.arrow(c.type, draw) for _ in range(POOL)], _arrow(c.type)) for c in schema]

    def made(count: int) -> bytes:
        picked = [one.take(pa.array(draw.choices(range(POOL), k=count), pa.int32())) for one in columns]
        names = [c.name for c in schema]
        for at, column in enumerate(schema):
            if draw.random() < 0.1 and column.type.kind in NARROW:
                low = pa.array(draw.choices((0, 1, 7, None), k=count), draw.choice(NARROW[column.type.kind]))
                picked[at] = low
            elif draw.random() < 0.05 and pa.types.is_string(picked[at].type):
                picked[at] = draw.choice((picked[at].dictionary_encode(), picked[at].cast(pa.large_string())))
        if draw.random() < 0.1:
            picked.append(pa.nulls(count, pa.int32()))
            names.append("more of it")
        if draw.random() < 0.004:
            picked[0], names[0] = pa.array(["x"] * count), f"{names[0]} no more"
        if draw.random() < 0.004:
            picked[0] = pa.array([[1]] * count, pa.list_(pa.int32()))
        order = list(range(len(names)))
        if draw.random() < 0.2:
            draw.shuffle(order)
        table = pa.Table.from_arrays([picked[i] for i in order], [names[i] for i in order])
        sink = io.BytesIO()
        pq.write_table(
            table,
            sink,
            row_group_size=draw.choice((7, 100, 10_000)),
            use_dictionary=draw.random() < 0.5,
            compression=draw.choice(("none", "snappy", "gzip", "zstd")),
            version=draw.choice(("1.0", "2.6")),
            data_page_version=draw.choice(("1.0", "2.0")),
        )
        return sink.getvalue() if draw.random() < 0.98 else b""

    return made


def _arrow(kind: Type) -> pa.DataType:
    match kind.kind:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "struct":
            return pa.struct([(n, _arrow(t)) for n, t in kind.parts])
        case "array":
            return pa.list_(_arrow(kind.parts[0][1]))
        case "map":
            return pa.map_(pa.string(), _arrow(kind.parts[0][1]))
    return ARROW[kind.kind]
