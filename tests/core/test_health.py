"""What a look asks of workers: a Spark on another machine's loopback is not taken for a silent one."""

import pytest

from rota.coordination.records import Live
from rota.face.health import is_reachable


@pytest.mark.parametrize(
    ("endpoint", "host", "asked"),
    [
        ("sc://127.0.0.1:15002", "there", False),
        ("sc://[::1]:15002", "there", False),
        ("sc://localhost:15002/;user_id=x", "there", False),
        ("sc://127.0.0.1:15002", "here", True),
        ("sc://127.0.0.1:15002", "", True),
        ("sc://spark-1:15002", "there", True),
        ("sc://[fd00::7]:15002", "there", True),
    ],
)
def test_a_spark_on_loopback_is_asked_on_its_own_machine_alone(endpoint: str, host: str, asked: bool) -> None:
    assert is_reachable(Live(endpoint=endpoint, host=host), "here") is asked
