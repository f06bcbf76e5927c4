"""What a worker says: each word stands in docs/protocol.md, and usage is told when it is news."""

import re
from pathlib import Path

import psutil
import pytest

from rota.usage import EVERY, STALE, Usage

ROOT = Path(__file__).parents[2]


def test_the_protocol_lists_every_word() -> None:
    code = "".join((ROOT / "rota" / p).read_text() for p in ("agent.py", "cli/worker.py"))
    said = {*re.findall(r'say\(\s*"([a-z-]+)"', code), "wait", "drain"}
    section = (ROOT / "docs" / "protocol.md").read_text().partition("## The words of a worker")[2].partition("\n## ")[0]
    listed = {word for row in re.findall(r"^\| (`.*?) \|", section, re.M) for word in re.findall(r"`([a-z-]+)`", row)}
    assert said == listed


def test_usage_is_news_when_it_moved_or_grew_old(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, now = 20.0, 0.0
    monkeypatch.setattr(psutil, "cpu_percent", lambda: cpu)
    usage = Usage(clock=lambda: now)

    def after(seconds: float) -> bool:
        nonlocal now
        now += seconds
        return usage.news() is not None

    assert not after(EVERY - 1), "not sampled yet"
    assert after(1), "the first sample"
    assert not after(EVERY), "the same"
    cpu = 45.0
    assert after(EVERY), "half of the way there is 12 points"
    assert not after(EVERY - 1)
    cpu = 33.0
    assert not after(EVERY), "no news"
    assert after(STALE), "old"


def test_bandwidth_is_a_fraction_of_what_the_cards_can(monkeypatch: pytest.MonkeyPatch) -> None:
    now, moved = 0.0, 0
    card = type("Card", (), {"isup": True, "speed": 1000})()
    monkeypatch.setattr(psutil, "net_if_stats", lambda: {"lo": card, "eth0": card})
    monkeypatch.setattr(psutil, "net_io_counters", lambda: type("Io", (), {"bytes_recv": moved, "bytes_sent": 0})())
    usage = Usage(clock=lambda: now)
    now, moved = EVERY, int(EVERY * 125_000_000 / 4)
    news = usage.news() or {}
    assert news["bandwidth_in"] == pytest.approx(0.25)
    assert news["bandwidth_out"] == 0
