"""`rota plan` keeps its contract: exact JSON, one clear line for bad input, an answer for every line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rota.cli import document
from rota.cli.plan import command
from rota.core.assignors import ASSIGNORS
from rota.core.assignors.pulsar import avg_shed, older_shedders
from rota.core.assignors.sticky_load import assignor as sticky_load
from rota.core.assignors.sticky_load import noise_band
from rota.errors import ConfigError

CASE = {
    "workers": [
        {
            "id": "w1",
            "capacity": 1.0,
            "zone": "a",
            "labels": {"disk": "ssd"},
            "state": "active",
            "max_partitions": None,
        },
        {"id": "w2"},
    ],
    "partitions": [
        {"id": "orders-0", "source": "orders", "load": 1.0, "requires": {"disk": "ssd"}, "pin": None},
        {"id": "orders-1", "source": "orders"},
        {"id": "orders-2", "pin": "w9"},
    ],
    "owners": {"orders-0": "w1", "orders-1": "w5", "orders-2": None},
    "assignor": "sticky",
    "options": {},
    "memory": None,
}
ANSWER = {
    "assignment": {"w1": ["orders-0"], "w2": ["orders-1"]},
    "moves": [{"partition": "orders-1", "from": "w5", "to": "w2", "load": 1.0, "reason": "w5 left"}],
    "unassigned": [{"partition": "orders-2", "from": None, "reason": "pinned to w9, which is not among the workers"}],
    "measures": {
        "imbalance_before": 2.0,
        "imbalance_after": 1.0,
        "lower_bound": 1.0,
        "moves": 1,
        "unavoidable_moves": 1,
        "placements": 0,
    },
    "memory": {},
}


def run(*arguments: str, given: str = "") -> Result:
    return CliRunner().invoke(command, arguments, input=given)


def test_the_contract_is_exact() -> None:
    said = run("-", "--json", given=json.dumps(CASE))
    assert said.exit_code == 0
    assert json.loads(said.stdout) == ANSWER


def test_tables_name_moves_and_reasons() -> None:
    said = run(given=json.dumps(CASE)).stdout
    assert "w5 left" in said
    assert "pinned to w9" in said
    assert "1 move (1 unavoidable), 0 placements." in said


@pytest.mark.parametrize("end", ["\n", "\r", "\u2028", "\x1b[2J"])
def test_a_table_keeps_a_line_a_row_whatever_a_label_is(end: str) -> None:
    partition = {"id": "p", "requires": {"disk": f"a{end}b"}}
    said = run(given=json.dumps({"workers": [{"id": "w1"}], "partitions": [partition], "owners": {"p": "w1"}})).stdout
    assert f"no worker has disk=a{ascii(end)[1:-1]}b" in said
    assert end == "\n" or end not in said


def test_without_moves_the_reason_is_printed() -> None:
    assert (
        "Nothing moves: counts are as even as they can be."
        in run(given='{"workers":[{"id":"a"}],"partitions":[{"id":"p"}],"owners":{"p":"a"}}').stdout
    )


def test_lines_answer_the_other_lines() -> None:
    said = run("--lines", given=f'{json.dumps(CASE)}\nnonsense\n\n{{"assignor":"stiky"}}\n{{}}\n')
    assert said.exit_code == 2
    first, second, third, fourth = map(json.loads, said.stdout.splitlines())
    assert first == ANSWER
    assert "Not a JSON document" in second["error"]
    assert "'stiky'" in third["error"]
    assert "sticky" in third["error"]
    assert fourth["measures"]["imbalance_after"] is None
    assert run("--lines", given="{}\n").exit_code == 0


def test_a_line_that_shows_a_bug_of_ours_does_not_take_the_others_along(monkeypatch: pytest.MonkeyPatch) -> None:
    real = document.answer_request

    def sometimes(request: document.Request) -> dict[str, object]:
        return real(request) if request.workers else {"x": 1 // len(request.workers)}

    monkeypatch.setattr(document, "answer_request", sometimes)
    said = run("--lines", given=f"{{}}\n{json.dumps(CASE)}\n")
    assert said.exit_code == 2
    first, second = map(json.loads, said.stdout.splitlines())
    assert "ZeroDivisionError" in first["error"]
    assert second == ANSWER


BAD = {
    '{"workers":[{"id":"w","capacity":true}]}': ("workers[0].capacity", "True", "finite number > 0"),
    '{"workers":[{"id":"w","capacity":0}]}': ("workers[0].capacity", "0", "finite number > 0"),
    '{"workers":[{"id":"w","capacity":NaN}]}': ("workers[0].capacity", "nan", "finite number > 0"),
    '{"workers":[{"id":"w","capacity":1e999}]}': ("workers[0].capacity", "inf", "finite number > 0"),
    '{"workers":[{"id":"w","capacity":"1"}]}': ("workers[0].capacity", "'1'", "finite number > 0"),
    '{"workers":[{"id":"w","state":"gone"}]}': ("workers[0].state", "'gone'", "active, cordoned, draining"),
    '{"workers":[{"id":"w","state":[]}]}': ("workers[0].state", "[]", "active, cordoned, draining"),
    '{"workers":[{"id":"w","max_partitions":1.5}]}': ("workers[0].max_partitions", "1.5", "whole number"),
    '{"workers":[{"id":"w","labels":{"a":1}}]}': ("workers[0].labels.a", "1", "string"),
    '{"workers":[{"id":"w","usage":{"disk":1}}]}': ("workers[0].usage", "'disk'", "bandwidth_in"),
    '{"workers":[{"id":"w","color":"red"}]}': ("workers[0]", "'color'", "capacity"),
    '{"workers":[{"id":"w/1"}]}': ("workers[0].id", "'w/1'", "A-Z a-z 0-9"),
    '{"workers":[{"id":"w\\n"}]}': ("workers[0].id", "w\\n", "A-Z a-z 0-9"),
    '{"workers":[{}]}': ("workers[0]", "'id'", "missing"),
    '{"workers":[{"id":"w"},{"id":"w"}]}': ("workers", "'w'", "once"),
    '{"workers":{"id":"w"}}': ("workers", "{'id': 'w'}", "list"),
    '{"partitions":[{"id":"p","load":-1}]}': ("partitions[0].load", "-1", "finite number >= 0"),
    '{"partitions":[{"id":"p","load":Infinity}]}': ("partitions[0].load", "inf", "finite number >= 0"),
    '{"partitions":[{"id":"p","source":"\\ud800"}]}': ("partitions[0].source", "ud800", "Unicode"),
    '{"partitions":[{"id":"p"},{"id":"p"}]}': ("partitions", "'p'", "once"),
    '{"owners":{"p":"w"}}': ("owners", "'p'", "partitions"),
    '{"partitions":[{"id":"p"}],"owners":{"p":3}}': ("owners.p", "3", "letter or digit"),
    '{"assignor":"best"}': ("assignor", "'best'", "sticky"),
    '{"options":{"x":1},"workers":[]}': ("option", "'x'", "sticky"),
    '{"options":[]}': ("options", "[]", "object"),
    '{"memory":{"a":[NaN]}}': ("memory.a.0", "nan", "finite"),
    '{"worker":[]}': ("the document", "'worker'", "workers"),
    '{"workers":[],"workers":[]}': ("field", "'workers'", "once"),
    "[]": ("the document", "[]", "object"),
    "": ("JSON", "", "object"),
    "[" * 100_000: ("nested", "", "docs/protocol.md"),
    '{"partitions":[{"id":"p","load":' + "9" * 5000 + "}]}": ("JSON", "", "object"),
    '{"options":{"budget":HUGE},"assignor":"sticky-load"}': ("options.budget", "9...", "whole number >= 0"),
    '{"options":{"tolerance":HUGE},"assignor":"sticky-load"}': ("options.tolerance", "9...", "finite number >= 0"),
    '{"options":{"hits_low":HUGE},"assignor":"avg-shed"}': ("options.hits_low", "9...", "whole number >= 1"),
    '{"options":{"weights":{"cpu":HUGE}},"assignor":"avg-shed"}': ("options.weights.cpu", "9...", "finite number >= 0"),
    '{"memory":{"avg-shed":{"round":HUGE}},"assignor":"avg-shed"}': ("memory.avg-shed.round", "9...", "a number"),
    '{"memory":{"planner":{"voluntary_at":HUGE}}}': ("memory.planner.voluntary_at", "9...", "a number"),
    '{"workers":[{"id":"w","labels":{"a\\nb":1}}]}': ("workers[0].labels.'a\\nb'", "1", "Unicode"),
    '{"partitions":[{"id":"p","requires":{"\\ud800":"x"}}]}': ("partitions[0].requires", "ud800", "Unicode"),
    '{"owners":{"p\\nq":3}}': ("owners.'p\\nq'", "3", "letter or digit"),
    '{"owners":{"p\\nq":"w"}}': ("owners", "'p\\nq'", "partitions"),
    '{"memory":{"a\\nb":NaN}}': ("memory.'a\\nb'", "nan", "finite"),
    '{"memory":{"LONG":NaN}}': ("memory.'xxx", "nan", "finite"),
    '{"owners":{"LONG":"w"}}': ("owners", "'xxx", "partitions"),
    '{"LONG":1}': ("the document", "'xxx", "workers"),
    '{"workers":[{"id":"w"}],"partitions":[{"id":"p","load":1e308},{"id":"q","load":1e308}],"assignor":"hash"}': (
        "load",
        "1e+308",
        "1e+100",
    ),
    '{"workers":[{"id":"w","capacity":1e-300}],"partitions":[{"id":"p","load":1e9}],"assignor":"sticky-load"}': (
        "load",
        "1e-300",
        "1e+100",
    ),
    '{"workers":[{"id":"w","usage":{"cpu":1e308}}],"partitions":[{"id":"p"}],"assignor":"threshold-shed"}': (
        "usage",
        "1e+308",
        "1e+100",
    ),
    '{"LONG":1,"LONG":1}': ("field", "'xxx", "once"),
    '{"assignor":"LONG"}': ("assignor", "'xxx", "sticky"),
    '{"options":{"LONG":1}}': ("option", "'xxx", "none"),
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: text[:50])
def test_bad_input_is_one_line_with_field_value_and_valid_ones(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        document.answer_request(document.parse_request(text.replace("HUGE", "9" * 400).replace("LONG", "x" * 2_000)))
    said = str(refused.value)
    assert said.isprintable()
    said.encode()
    assert len(said) < 400
    for part in BAD[text]:
        assert part in said


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Give a file"):
        run(str(tmp_path / "no.json")).exception and CliRunner().invoke(
            command, [str(tmp_path / "no.json")], catch_exceptions=False
        )


def test_protocol_lists_every_field() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    section = page.split("## `rota plan`")[1].split("\n## ")[0]
    named = {
        *document.Request.model_fields,
        *document.WorkerFields.model_fields,
        *document.PartitionFields.model_fields,
        *ANSWER,
        *ANSWER["measures"],
    }
    assert not [name for name in named if f"`{name}`" not in section]


def test_protocol_lists_every_option_and_memory() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
    section = page.split("## `rota plan`")[1].split("\n## ")[0]
    options = {"budget", "tolerance", "move_price", "spread", "rate_percent", "throughput_ratio", "history", "weights"}
    for name in {
        *ASSIGNORS,
        *avg_shed.OPTIONS,
        *avg_shed.MEMORY,
        *noise_band.MEMORY,
        *older_shedders.MEMORY,
        *sticky_load.OPTIONS,
        *options,
    }:
        assert f"`{name}`" in section, name
