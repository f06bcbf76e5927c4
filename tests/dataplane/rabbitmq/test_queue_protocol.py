"""The code uses the names in RabbitMQ that docs/protocol.md lists."""

import re

from rota.dataplane.rabbitmq.publisher import Ledger
from rota.dataplane.rabbitmq.queues import QUEUE, REASON, SEQUENCE, name_quarantine, name_sequence
from tests.docs.pages import ROOT


def test_the_page_lists_every_name() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text()
    section = page.partition("## RabbitMQ\n")[2].partition("\n## ")[0]
    names = re.findall(r"^\| (header|queue) `([^`]+)`", section, re.M)
    assert {name for kind, name in names if kind == "header"} == {QUEUE, SEQUENCE, REASON}
    queues = {name_sequence("<queue>"), name_quarantine("<prefix>")}
    assert {name for kind, name in names if kind == "queue"} == queues


def test_a_ledger_is_written_as_documented() -> None:
    assert Ledger(7, (b"ab", b"c")).encode() == b'{"next": 7, "sizes": [2, 1]}\nabc'
