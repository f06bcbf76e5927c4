"""Whatever a document holds, `rota plan` answers it or refuses it with one line."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rota.cli import document
from rota.core.assignors import ASSIGNORS
from rota.core.assignors.pulsar import avg_shed
from rota.errors import ConfigError

JUNK: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([10**30, 10**308, 10**400, -(10**400)])
    | st.floats()
    | st.sampled_from(["", "w1", "p1", "active", "ü", "\ud800", "a\nb"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["id", "w1", "p1", "cpu", "a\nb", "\ud800"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def like(good: Any) -> Any:
    """Mostly what is right, sometimes junk."""
    return st.one_of(good, good, good, good, good, JUNK)


NUMBER = st.sampled_from([0, 1, 2.5, 1e308, 5e-324])
ID = st.sampled_from(["w1", "w2", "p1", "p2", "p3"])
WORKER = st.fixed_dictionaries(
    {"id": like(st.sampled_from(["w1", "w2", "w3"]))},
    optional={
        "capacity": like(NUMBER),
        "zone": like(st.sampled_from(["a", None])),
        "labels": like(st.just({"disk": "ssd"})),
        "state": like(st.sampled_from(["active", "cordoned", "draining"])),
        "max_partitions": like(st.sampled_from([None, 0, 1, 10**30])),
        "usage": like(
            st.fixed_dictionaries({}, optional={k: like(NUMBER) for k in ("cpu", "memory", "rate", "throughput")})
        ),
    },
)
PARTITION = st.fixed_dictionaries(
    {"id": like(st.sampled_from(["p1", "p2", "p3"]))},
    optional={
        "source": like(st.sampled_from(["a", "b"])),
        "load": like(NUMBER),
        "rate": like(NUMBER),
        "throughput": like(NUMBER),
        "requires": like(st.just({"zone": "a"})),
        "pin": like(ID),
    },
)
DOCUMENT = st.fixed_dictionaries(
    {},
    optional={
        "workers": like(st.lists(WORKER, max_size=3, unique_by=lambda w: str(w["id"]))),
        "partitions": like(st.lists(PARTITION, max_size=3, unique_by=lambda p: str(p["id"]))),
        "owners": like(st.dictionaries(ID, like(ID), max_size=2)),
        "assignor": like(st.sampled_from(sorted(ASSIGNORS))),
        "options": like(
            st.dictionaries(st.sampled_from([*avg_shed.OPTIONS, "budget", "spread", "weights"]), JUNK, max_size=1)
        ),
        "memory": like(
            st.dictionaries(
                st.sampled_from([*sorted(ASSIGNORS), "planner"]),
                like(
                    st.dictionaries(
                        st.sampled_from([*avg_shed.MEMORY, "settled", "usage", "voluntary_at"]), JUNK, max_size=3
                    )
                ),
                max_size=2,
            )
        ),
    },
)


@given(DOCUMENT)
@settings(max_examples=120)
def test_an_answer_or_one_line(given_document: Any) -> None:
    said: Any = None
    try:
        said = document.answer_request(document.parse_request(json.dumps(given_document)))
    except ConfigError as refused:
        said = str(refused).splitlines()
    assert not isinstance(said, list) or len(said) == 1
    json.dumps(said, allow_nan=False)
