"""Times that files have: as clients, archives and broken clocks give them."""

from collections.abc import Callable

from tests.conservation.draw import Draw

SECOND = 1_000_000_000
CLOCKS: dict[str, Callable[[Draw, int], int | None]] = {  # of the files of a case, by their number, in ns
    "as written": lambda more, n: None,
    "all equal": lambda more, n: 1_700_000_000 * SECOND,
    "backwards": lambda more, n: (1_700_000_000 - n) * SECOND,
    "1970": lambda more, n: more.choice((0, 1, -1, -SECOND)),
    "ahead": lambda more, n: (4_000_000_000 + n) * SECOND,
    "any": lambda more, n: more.randint(-(2**31), 15_000_000_000) * SECOND + more.randint(0, SECOND - 1),
}
