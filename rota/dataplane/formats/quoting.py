"""Checks that the quotes of CSV are well-formed, by Spark's options.

Law: a record is well-formed if each of its fields is quoted completely or does not begin with a quote. Spark's parser also
reads other records, but guesses: an open quote takes the rest of the record into its field. `is_clean` never accepts bytes
with a record that `pattern` does not match.

The module is sent to Spark's workers as code, with `decoding`: it needs nothing of rota there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

LENIENT = "unescapedquotehandling"  # with this option, the user chooses how Spark's parser guesses
BLANK = r"[\x00-\x20]*+"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The separator, quote and escape of CSV. With an empty `quote`, fields are not quoted, or quotes are not checked."""

    sep: str = ","
    quote: str = '"'
    escape: str = '"'
    trims: bool = False  # blanks around a quoted field are no part of it

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Dialect":
        """Return the dialect that the options of a source declare."""
        given = {name.lower(): text for name, text in options.items()}
        quote = "" if LENIENT in given else given.get("quote", '"')
        trims = any(given.get(f"ignore{side}whitespace", "").lower() == "true" for side in ("leading", "trailing"))
        sep = given.get("sep", given.get("delimiter", ",")).replace("\\t", "\t")
        return cls(sep, quote, given.get("escape", given.get("quote", '"')), trims)

    @property
    def is_blank(self) -> bool:
        """Return whether the separator consists of blanks: then a record of empty fields looks like a blank line."""
        return all(one <= " " for one in self.sep)

    @property
    def pattern(self) -> str:
        """Return a regular expression (Java and Python) for one well-formed record; empty if every record is
        well-formed.
        """
        field = self._field(f"(?:(?!{_code(self.sep)}){_ANY})*+")
        return rf"\A(?:{field}{_code(self.sep)})*+{field}{_END}" if field else ""

    def find_ill(self, text: str) -> int:
        """Return where the first ill-formed record of a text begins, if records may span lines; -1 if there is none."""
        field = self._field(rf"(?:(?!{_code(self.sep)})[^\r\n])*+")
        if not field:
            return -1
        record = re.compile(rf"(?:{field}{_code(self.sep)})*+{field}(?:\r\n|\r|\n|{_END})")
        at = 0
        while at < len(text):
            found = record.match(text, at)
            if not found:
                return at
            at = found.end()
        return -1

    def split(self, record: str) -> list[str]:
        """Return the fields of a record as Spark's parser reads them.

        An escape counts only inside quotes, before a quote or another escape. Anywhere else it is a character. The csv
        module drops an escape before any character, so it is not used.
        """
        sep, quote, escape = map(_code, (self.sep, self.quote, self.escape))
        quoted = f"({self._quoted})(?={sep}|{_END})" if quote else "(?!)()"
        field = re.compile(f"{quoted}|(?:(?!{sep}){_ANY})*+")
        fields, at = list[str](), 0
        while found := field.match(record, at):
            inside = found[1] and found[1][len(self.quote) : -len(self.quote)]
            fields.append(found[0] if inside is None else re.sub(f"{escape}([{quote}{escape}])", r"\1", inside))
            if not record.startswith(self.sep, found.end()):
                break
            at = found.end() + len(self.sep)
        return fields

    @property
    def _quoted(self) -> str:
        """Return the pattern of one field in quotes."""
        quote, escape = _code(self.quote), _code(self.escape)
        doubled = rf"[^{quote}]*+(?:{quote}{quote}[^{quote}]*+)*+"
        inside = doubled if escape == quote else rf"(?:[^{quote}{escape}]++|{escape}{_ANY})*+"
        return f"{quote}{inside}{quote}"

    def _field(self, bare: str) -> str:
        """Return the pattern of one well-formed field; `bare` is the pattern of a field without quotes."""
        if not self.quote:
            return ""
        around = BLANK if self.trims and not self.is_blank else ""
        return rf"(?:{around}{self._quoted}{around}|(?!{around}{_code(self.quote)}){bare})"

    def is_clean(self, block: bytes) -> bool:
        """Return whether these complete lines are proven to be well-formed records. The cost grows with the quotes."""
        import numpy as np  # `rota status` opens sources without it

        mark = self.quote.encode()
        if not mark or mark not in block:
            return True
        if len(mark) > 1 or len(self.sep.encode()) > 1 or (self.escape != self.quote and self.escape.encode() in block):
            return False
        codes = np.frombuffer(block, np.uint8)
        at = np.flatnonzero(codes == mark[0])
        opens, closes = at[0::2], at[1::2]
        if len(opens) != len(closes):
            return False
        ends = np.zeros(256, np.bool_)
        ends[[ord(self.sep), ord("\n")]] = True
        begun = ends[codes[opens - 1]] | (opens == 0)
        ends[ord("\r")] = True
        ended = ends[codes[np.minimum(closes + 1, len(codes) - 1)]] | (closes == len(codes) - 1)
        doubled = (closes[:-1] + 1 == opens[1:]) & (self.escape == self.quote)
        begun[1:] |= doubled
        ended[:-1] |= doubled
        if not (begun.all() and ended.all()):
            return False
        lines = np.flatnonzero(codes == ord("\n"))
        return bool((np.searchsorted(lines, opens) == np.searchsorted(lines, closes)).all())


_ANY = r"[\s\S]"
_END = rf"(?!{_ANY})"


def _code(text: str) -> str:
    """Return the characters as a regular expression of Java and Python, also within brackets."""
    return "".join(f"\\u{ord(one):04x}" if ord(one) < 1 << 16 else re.escape(one) for one in text)
