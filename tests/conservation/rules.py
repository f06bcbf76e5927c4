"""What a text means as a value of a type: the rules of Spark 4.3's readers, in words of our own, from its documentation
and from probes by hand. Nothing here is of Spark or of rota.

A value is canonical: a whole number, float or "NaN", Decimal, str, bytes, a date in days and a timestamp in microseconds
since 1970 (so that no calendar ends), a struct or array as a tuple, a map as a tuple of pairs, None.
"""

import base64
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal

from tests.conservation.shape import WHOLE, Type

Value = object
EXACT = Context(prec=200, traps=[])


class Bad(Exception):
    """The text is no value of the type; the argument is the class of the reason."""


class Unclear(Exception):
    """No documentation states what the text means: the record must be in one of the two tables, no matter which."""


INTEGER = re.compile(r"[+-]?\d+")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?")
JAVA = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,9})?[fFdD]?)", re.ASCII)
HEX = re.compile(r"[+-]?0[xX]")
DAY = re.compile(r"(-?)(\d{4})-(\d\d)-(\d\d)", re.ASCII)
DATE = re.compile(r"([+-]?)(\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
MOMENT = re.compile(
    r"([+-]?)(\d{4,6})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?\s*(Z|UTC|[+-]\d\d:\d\d|[+-]\d\d\d\d|[+-]\d\d)?)?)?)?",
    re.ASCII,
)
ONLY_TIME = re.compile(r"T?\d{1,2}:\d{1,2}.*", re.ASCII)
BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
SPACE = "".join(map(chr, range(33))) + "\x7f"
LAST_DAY = 2**31 - 1
MICROS = 86_400_000_000
MONTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days(year: int, month: int, day: int) -> int:
    """Since 1970-01-01, in the calendar that has a year 0. Raises Bad for a day that is not."""
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= MONTHS[month - 1] + (leap and month == 2):
        raise Bad("no such day")
    y = year - (month <= 2)
    era, of_year = y // 400, (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    in_era = y - era * 400
    return era * 146097 + in_era * 365 + in_era // 4 - in_era // 100 + of_year - 719468


def whole(text: str, bits: int) -> int:
    """Java's parse: a sign, and digits of any script."""
    if not INTEGER.fullmatch(text):
        raise Bad("no whole number")
    return within(int(text) if len(text) < 99 else 1 << 99, bits)


def within(value: int, bits: int) -> int:
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Bad("out of range")
    return value


def real(text: str, single: bool) -> Value:
    """Java's parse: blanks around, a suffix f or d, NaN, Infinity; what is too large is infinite."""
    if text in ("Inf", "-Inf"):
        return float(text)
    text = text.strip(SPACE)
    if HEX.match(text):
        raise Unclear
    if not JAVA.fullmatch(text):
        raise Bad("no number")
    return round_text(text.rstrip("fFdD") if text[-1] in "fFdD" else text, single)


def round_text(text: str, single: bool) -> Value:
    value = float(text)
    if single and value - value == 0:
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return value if value == value else "NaN"


def decimal(text: str, kind: Type) -> Decimal:
    """Rounded half up to the scale; what then has too many digits is bad."""
    if "," in text:
        raise Unclear
    found = NUMBER.fullmatch(text)
    if not found:
        raise Bad("no number")
    if (found[2] and abs(int(found[2][1:])) > 100) or len(text) > 150:
        raise Unclear
    value = Decimal(text).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    if not value.is_finite() or value.copy_abs() >= Decimal(10) ** (kind.precision - kind.scale):
        raise Bad("out of range")
    return value


def boolean(text: str) -> bool:
    if (low := text.lower()) not in ("true", "false"):
        raise Bad("no boolean")
    return low == "true"


def day(text: str) -> int:
    """yyyy-MM-dd and nothing else, as rota reads CSV."""
    found = DAY.fullmatch(text)
    if not found:
        raise Bad("no date")
    sign, year, month, of_month = found.groups()
    return days(int(sign + year), int(month), int(of_month))


def date(text: str) -> int:
    """As Spark casts: year[-month[-day]] with anything behind a blank or T; years of four to seven digits."""
    found = DATE.fullmatch(text.strip(SPACE))
    if not found:
        raise Bad("no date")
    sign, year, month, day = found.groups()
    value = days(int(sign + year), int(month or 1), int(day or 1))
    if abs(value) > LAST_DAY:
        raise Bad("out of range")
    return value


def moment(text: str, zoned: bool) -> int:
    """As Spark casts, in UTC where no zone is said; digits behind the sixth of a second fall. `zoned`: a zone is allowed."""
    text = text.strip(SPACE)
    found = MOMENT.fullmatch(text)
    if not found:
        if zoned and (ONLY_TIME.fullmatch(text) or re.match(r"[+-]?\d{4,6}-\d+-\d+[T ]\d+:\d+.*[A-Za-z/+.-]", text)):
            raise Unclear  # today's date; the names of zones
        raise Bad("no timestamp")
    sign, year, month, day, hour, minute, second, fraction, zone = found.groups()
    if zone and not zoned:
        raise Bad("no zone is allowed")
    at = days(int(sign + year), int(month or 1), int(day or 1)) * MICROS
    if int(hour or 0) > 23 or int(minute or 0) > 59 or int(second or 0) > 59:
        raise Bad("no such time")
    at += (int(hour or 0) * 3600 + int(minute or 0) * 60 + int(second or 0)) * 1_000_000
    at += int(((fraction or "") + "000000")[:6])
    if zone and zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        minutes = int(digits[:2]) * 60 + int(digits[2:])
        if minutes > 18 * 60 or int(digits[2:]) > 59:
            raise Bad("no such zone")
        at -= minutes * 60_000_000 * (1 if zone[0] == "+" else -1)
    return within(at, 64)


def binary(text: str) -> bytes:
    """Base64, as JSON carries bytes."""
    if not BASE64.fullmatch(text):
        if any(c <= " " for c in text):
            raise Unclear  # Spark passes over some
        raise Bad("no base64")
    return base64.b64decode(text)


def of_csv(kind: Type) -> Callable[[str], Value]:
    """The rule for a CSV field that is not null."""
    if kind.kind in WHOLE:
        bits = WHOLE[kind.kind]
        return lambda text: whole(text, bits)
    return {
        "float": lambda text: real(text, True),
        "double": lambda text: real(text, False),
        "decimal": lambda text: decimal(text, kind),
        "boolean": boolean,
        "string": str,
        "binary": str.encode,
        "date": day,
        "timestamp": lambda text: moment(text, True),
        "timestamp_ntz": lambda text: moment(text, False),
    }[kind.kind]
