"""Cases out of one whole number: the same number makes the same bytes. Most records are plain; damage is rare and
everywhere."""

import bz2
import gzip
import io
import json
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conservation import parquet_types, pools, transforms
from tests.conservation.case import Case, File
from tests.conservation.clocks import CLOCKS
from tests.conservation.draw import Draw
from tests.conservation.shape import Column, Schema, Type, draw_schema

FILES = 23
POOL = 40
STOPS = (  # what ends a partition: a file that is broken as a whole, or too many bad records
    *(("csv", what) for what in ("compression", "header", "ratio")),
    *(("json", what) for what in ("compression", "ratio")),
    *(("parquet", what) for what in ("bytes", "column", "type")),
)
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
MORE = ('"more": 1', '"other": {"a": [1, {}]}')
DEEP = tuple(f'"deep": {"[" * n}{"]" * n}' for n in (50, 500, 1500, 20_000))


def draw_case(seed: int, number: int, files: int = FILES) -> Case:
    """The case of this number. Some 210 records a file. In one case of eight a partition may stop; it has few files, since
    the search for what stops it reads the others again and again. One of five is run as a worker's Spark runs it, and
    one of nine lies in a bucket."""
    draw, more = Draw(f"{seed} {number}"), Draw(f"{seed} {number} more")
    more.noted = draw.noted
    format, stop = draw.choice(("csv", "csv", "json", "json", "parquet")), ""
    if number % 8 == 5:
        format, stop = STOPS[number // 8 % len(STOPS)]
        draw.note("stop", f"{format} {stop}")
        files = min(files, 6)
    schema = draw_schema(
        draw,
        format != "csv",
        "byte" if format == "json" else "",
        tuple(pools.KEYS) if format == "parquet" else ("string",),
    )  # that is refused: Spark takes 200 for -56
    for column in schema:
        _note_types(draw, format, column.type)
    options = _csv_options(draw) if format == "csv" else {}
    if format == "csv" and more.random() < 0.1:
        options |= {"multiLine": "true", "encoding": more.choice(("UTF-16", "UTF-16LE", "UTF-16BE"))}
    if stop == "header":
        options["header"] = "true"
    for option in options.items():
        draw.note("option", "=".join(option))
    suffix = {"csv": ".csv", "json": draw.choice((".json", ".jsonl", "")), "parquet": ".parquet"}[format]
    keys = ["a", "b=1", "ü c", "d%"][: draw.randint(2, 4)]
    json_of = partial(_json, deep=more.random() < 0.2)
    make = {"csv": _csv, "json": json_of, "parquet": partial(_parquet, more=more)}[format](draw, schema, options)
    broken = draw.randrange(files) if stop in ("compression", "header", "bytes", "column", "type") else -1
    found = []
    clock = more.choice(tuple(CLOCKS))
    draw.note("clock", clock)
    for n in range(files):
        hurt = stop if n == broken else ""
        data = make(_count(draw), hurt)
        name = f"{n:03}{suffix}"
        if hurt in ("compression", "bytes"):
            data, name = _break(draw, format, data, name)
        elif format != "parquet":
            data, name = _pack(draw, data, name)
        found.append(File(draw.choice(keys), name, data, CLOCKS[clock](more, n)))
    ratio = draw.choice((0.0, 0.02, 0.1)) if stop == "ratio" else 1.0
    transform = transforms.draw_transform(draw, schema)
    if more.random() < 0.05:
        transform = transforms.make_transform(more, schema, "line break")
    elif more.random() < 0.25:
        transform = transforms.make_transform(more, schema, "compared")
    draw.note("transform", transform.kind)
    engine, store = "interpreted" if number % 5 else "compiled", "disk" if number % 9 != 4 else "bucket"
    draw.note("engine", f"{format} {engine}")
    draw.note("store", f"{format} {store}")
    whence, files_of = f"--seed {seed}, case {number}", tuple(found)
    return Case(whence, format, schema, options, ratio, files_of, transform, engine, store, draw.noted)


def _note_types(draw: Draw, format: str, kind: Type) -> None:
    draw.note("type", f"{format} {kind.kind}")
    for _, part in kind.parts:
        _note_types(draw, format, part)


def _count(draw: Draw) -> int:
    return draw.choice((0, 1, 2, 3)) if draw.random() < 0.1 else draw.randint(50, 420)


def _pack(draw: Draw, data: bytes, name: str) -> tuple[bytes, str]:
    chance = draw.random()
    kind = "gz" if chance < 0.1 else "bz2" if chance < 0.13 else "none"
    draw.note("compression", kind)
    if kind == "gz":
        return gzip.compress(data, 1, mtime=0), f"{name}.gz"
    return (bz2.compress(data, 1), f"{name}.bz2") if kind == "bz2" else (data, name)


def _break(draw: Draw, format: str, data: bytes, name: str) -> tuple[bytes, str]:
    """A file that fails as a whole."""
    if format == "parquet":
        return draw.choice((b"no parquet at all", data[: len(data) // 2] + b"PAR1", b"PAR1")), name
    plain = name.partition(".gz")[0].partition(".bz2")[0]
    whole = gzip.compress(data * 2 + draw.randbytes(200).hex().encode(), 1, mtime=0)
    return draw.choice((whole[: len(whole) // 2], whole[:-30], data[:9] + b"no gzip")), f"{plain}.gz"


def _sprinkle(draw: Draw, count: int, rate: float) -> list[int]:
    return draw.sample(range(count), min(count, int(count * rate) + (draw.random() < 0.5)))


def _large(draw: Draw) -> str:
    return draw.choice("xyü") * 100_000


# --- CSV ------------------------------------------------------------------------------------------------------------


def _csv_options(draw: Draw) -> dict[str, str]:
    options = {}
    if draw.random() < 0.5:
        options["header"] = "true"
    if draw.random() < 0.4:
        options["sep"] = draw.choice((";", "\t", "|", "||", "\x01"))
    if draw.random() < 0.2:
        options["quote"] = "'"
    if draw.random() < 0.4:
        options["escape"] = draw.choice((options.get("quote", '"'), "\\"))
    if draw.random() < 0.3:
        options["multiLine"] = "true"
    if draw.random() < 0.3:
        options["nullValue"] = draw.choice(("NULL", "-", "0"))
    return options


def _csv(draw: Draw, schema: Schema, options: dict[str, str]) -> Callable[[int, str], bytes]:
    sep, quote = options.get("sep", ","), options.get("quote", '"')
    escape = options.get("escape", quote)
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
    first = [[t for t in one if "\r" not in t and "\n" not in t] for one in columns]  # shows where lines end
    header = sep.join(field(c.name) for c in schema)

    def make(count: int, stop: str) -> bytes:
        rows = [list(row) for row in zip(*(draw.choices(one, k=count) for one in columns), strict=True)]
        if rows and spans:
            rows[0] = [draw.choice(one) for one in first]
        for n in _sprinkle(draw, count, 0.02):
            at = draw.randrange(len(schema))
            rows[n][at] = odd(schema[at])
            draw.note("odd value", f"csv {schema[at].type.kind}")
        for n in _sprinkle(draw, count, 0.01):
            fields = {
                "too few": rows[n][:-1] or ["", ""],
                "one more": [*rows[n], "more"],
                "many": ["x"] * (len(schema) + 3),
            }
            kind = draw.choice(tuple(fields))
            rows[n] = fields[kind]
            draw.note("fields", kind)
        if count and draw.random() < 0.02 and (at := _of_kind(schema, "string")) is not None:
            rows[draw.randrange(count)][at] = _large(draw)
            draw.note("huge", "csv")
        lines = [sep.join(row) for row in rows]
        if draw.random() < 0.1:
            lines.insert(draw.randint(0, len(lines)), "")
            draw.note("blank line", "csv")
        if not spans:
            for n in _sprinkle(draw, len(lines), 0.004):
                lines[n] = _scar(draw, lines[n], quote)
        if "header" in options:
            lines.insert(0, header + sep + "more" if stop == "header" else header)
        end = draw.choice(("\n", "\n", "\r\n"))
        draw.note("line end", repr(end))
        data = end.join(lines).encode() + (end.encode() if draw.random() < 0.9 else b"")
        if "encoding" in options:
            return data.decode().encode(options["encoding"])
        if draw.random() < 0.03:
            data = b"\xef\xbb\xbf" + data
            draw.note("byte order mark", "csv")
        if not spans:
            data = _hurt(draw, data)
        return data

    return make


def _scar(draw: Draw, line: str, quote: str) -> str:
    """A line that another grammar might read."""
    at = draw.randint(0, len(line))
    scar = draw.choice((quote, "\0", "   ", "\t", "\ufffd", "\r"))
    draw.note("scar", repr(scar))
    return line[:at] + scar + line[at:]


def _hurt(draw: Draw, data: bytes) -> bytes:
    """Half a line at the end, bytes that are no UTF-8, blank lines."""
    chance = draw.random()
    if chance < 0.04:
        draw.note("hurt", "half a line")
        return data[: max(0, len(data) - draw.randint(1, 30))]
    if chance < 0.08 and data:
        at = draw.randrange(len(data))
        draw.note("hurt", "no UTF-8")
        return data[:at] + draw.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xe9")) + data[at:]
    if chance < 0.11:
        draw.note("hurt", "blank lines")
        return data.replace(b"\n", b"\n\n", 3)
    return data


def _of_kind(schema: Schema, kind: str) -> int | None:
    return next((i for i, c in enumerate(schema) if c.type.kind == kind), None)


# --- JSON -----------------------------------------------------------------------------------------------------------


def _json(draw: Draw, schema: Schema, options: dict[str, str], deep: bool) -> Callable[[int, str], bytes]:
    names = [json.dumps(c.name, ensure_ascii=draw.random() < 0.5) for c in schema]
    columns = [[f"{n}: {pools.literal(c.type, draw)}" for _ in range(POOL)] for n, c in zip(names, schema, strict=True)]
    ends = draw.choice(("\n", "\n", "\n", "\r\n"))

    def odd(at: int) -> str:
        return f"{names[at]}: {pools.odd_literal(schema[at].type, draw)}"

    def make(count: int, stop: str) -> bytes:
        rows = [list(row) for row in zip(*(draw.choices(one, k=count) for one in columns), strict=True)]
        for n in _sprinkle(draw, count, 0.02):
            at = draw.randrange(len(schema))
            rows[n][at] = odd(at)
            draw.note("odd value", f"json {schema[at].type.kind}")
        for n in _sprinkle(draw, count, 0.03):
            change = draw.choice(
                ("in another order", "without a field", "with another field", "twice", "odd and then right")
            )
            draw.note("object", change)
            match change:
                case "in another order":
                    draw.shuffle(rows[n])
                case "without a field":
                    rows[n].pop(draw.randrange(len(rows[n])))
                case "with another field":
                    rows[n].insert(draw.randint(0, len(rows[n])), draw.choice((*MORE, *(DEEP if deep else ()))))
                case "twice":
                    rows[n].append(draw.choice(columns[draw.randrange(len(columns))]))
                case "odd and then right":
                    rows[n].insert(0, odd(draw.randrange(len(schema))))
        if count and draw.random() < 0.02 and (at := _of_kind(schema, "string")) is not None:
            rows[draw.randrange(count)][at] = f'{names[at]}: "{_large(draw)}"'
            draw.note("huge", "json")
        lines = ["{" + ", ".join(row) + "}" for row in rows]
        for n in _sprinkle(draw, count, 0.006):
            lines[n] = _no_object(draw, lines[n], lines[draw.randrange(count)])
        data = ends.join(lines).encode() + (ends.encode() if draw.random() < 0.9 else b"")
        if draw.random() < 0.03:
            data = b"\xef\xbb\xbf" + data
            draw.note("byte order mark", "json")
        return _hurt(draw, data)

    return make


def _no_object(draw: Draw, line: str, other: str) -> str:
    """A line that is no object, or not for all."""
    half = line[: draw.randint(0, max(0, len(line) - 1))]
    made = {
        "half": half,
        "half, another": f"{half}{other}",
        "half, NUL": f"{half}\0",
        "null": "null",
        "number": "1",
        "text": '"x"',
        "boolean": "true",
        "empty list": "[]",
        "list of one": f"[{line}]",
        "list of two": f"[{line}, {other}]",
        "list of a number": "[1]",
        "list of both": f"[{line}, 5]",
        "empty object": "{}",
        "no JSON": "not json",
        "blanks around": f"  {line}  ",
        "tab": "\t",
        "comma": f"{line},",
        "comma, number": f"{line}, 7",
        "comma, field": f'{line}, "n": 7}}',
        "another": f"{line}{draw.choice(('', ' ', ','))}{other}",
        "an end more": f"{line}{draw.choice('}]')}",
        "comma inside": f"{line[:-1]},}}",
        "single quotes": line.replace('"', "'"),
    }
    kind = draw.choice(tuple(made))
    draw.note("line", kind)
    return made[kind]


# --- Parquet --------------------------------------------------------------------------------------------------------


def _parquet(draw: Draw, schema: Schema, options: dict[str, str], more: Draw) -> Callable[[int, str], bytes]:
    columns = [pa.array([pools.arrow(c.type, draw) for _ in range(POOL)], _arrow(c.type)) for c in schema]

    def make(count: int, stop: str) -> bytes:
        picked = [one.take(pa.array(draw.choices(range(POOL), k=count), pa.int32())) for one in columns]
        names = [c.name for c in schema]
        for at, column in enumerate(schema):
            other = parquet_types.draw_equal(more, column.type, count) if more.random() < 0.15 else None
            picked[at] = picked[at] if other is None else other
        if draw.random() < 0.1:
            picked.append(pa.nulls(count, pa.int32()))
            names.append("more of it")
            draw.note("parquet", "one more column")
        if stop == "column":
            picked[0], names[0] = pa.array(["x"] * count), f"{names[0]} no more"
        if stop == "type":
            picked[0] = parquet_types.draw_other(more, schema[0].type, count)
        order = list(range(len(names)))
        if draw.random() < 0.2:
            draw.shuffle(order)
            draw.note("parquet", "columns in another order")
        table = pa.Table.from_arrays([picked[i] for i in order], [names[i] for i in order])
        sink = io.BytesIO()
        codec = draw.choice(("none", "snappy", "gzip", "zstd"))
        draw.note("compression", f"parquet {codec}")
        pq.write_table(
            table,
            sink,
            row_group_size=draw.choice((7, 100, 10_000)),
            use_dictionary=draw.random() < 0.5,
            compression=codec,
            store_decimal_as_integer=more.random() < 0.5,
            version=draw.choice(("1.0", "2.6")),
            data_page_version=draw.choice(("1.0", "2.0")),
        )
        if not stop and draw.random() < 0.02:
            draw.note("parquet", "no bytes")
            return b""
        return sink.getvalue()

    return make


def _arrow(kind: Type) -> pa.DataType:
    match kind.kind:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "struct":
            return pa.struct([(n, _arrow(t)) for n, t in kind.parts])
        case "array":
            return pa.list_(_arrow(kind.parts[0][1]))
        case "map":
            return pa.map_(ARROW[kind.key], _arrow(kind.parts[0][1]))
    return ARROW[kind.kind]
