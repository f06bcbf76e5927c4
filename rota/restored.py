"""What tells that an index is older than its table. Law: whoever gives offsets to files asks here first.

An index that forgot files would number them anew: those that were consumed again, and those that landed meanwhile never.
"""

from collections.abc import Mapping

from rota.dataplane.fileindex import without_copy
from rota.dataplane.ledger import Ledger
from rota.dataplane.source import Source
from rota.dataplane.table import Standing


def forgotten(source: Source, main: Ledger, standing: Mapping[str, Standing]) -> dict[str, str]:
    """The partitions whose table consumed offsets that the index has not given, with the reason; nothing may be given
    in them. `standing` was read from the table before: a commit comes after the offsets that it consumed."""
    given = source.given(tuple(standing))
    ahead = {p: given[p] for p, one in standing.items() if (one.offset or 0) > given[p]}
    past = main.reaching(ahead)  # none, where a partition only begins at an offset that it has not reached yet
    return {
        p: (
            f"{main.path} is at {standing[p].offset}, and the index has given {at} offsets: an older one was restored, or "
            f"it was lost. Bring its index back, then: rota retry {p}. {without_copy(main.path.parent)}"
        )
        for p, at in ahead.items()
        if any(one.passed(p, at) for one in past)
    }
