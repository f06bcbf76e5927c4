"""An asset below a table in the user's own file follows it: no batch is forgotten, none is followed twice."""

from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from rota.catalog import load

RECORDS = dg.AssetKey(["flights", "records"])
DELAYS = dg.AssetKey(["flights", "delays"])
ROOT = Path(__file__).parents[2]
FORGETFUL = dg.AutomationCondition.any_deps_updated() & ~dg.AutomationCondition.in_progress()

# Dagster warns of a word of its own evaluator.
pytestmark = pytest.mark.filterwarnings("ignore::dagster.BetaWarning")


class Downstream:
    """The asset below the table, with a body of the test's; `tick` is a tick of the automation sensor."""

    def __init__(self, condition: dg.AutomationCondition, instance: dg.DagsterInstance) -> None:
        partitions = dg.DynamicPartitionsDefinition(name="flights/partitions")
        self.meanwhile: Callable[[], object] = lambda: None

        @dg.asset(key=RECORDS, partitions_def=partitions)
        def records() -> None: ...

        @dg.asset(key=DELAYS, deps=[RECORDS], automation_condition=condition)
        def delays() -> None:
            self.meanwhile()

        self.delays = delays
        self.defs = dg.Definitions([records, delays])
        self.instance = instance
        self.instance.add_dynamic_partitions(
            "flights/partitions", ["flights:AA", "flights:UA", "flights:never-consumed"]
        )
        self.cursor: object = None

    def commit(self, key: str) -> None:
        self.instance.report_runless_asset_event(dg.AssetMaterialization(RECORDS, partition=key))

    def tick(self) -> bool:
        """Whether this tick asks for a run."""
        found = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)  # type: ignore[arg-type]
        self.cursor = found.cursor
        return found.get_num_requested(DELAYS) == 1

    def run(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """What was asked for is done; `meanwhile` happens while it is in progress."""
        self.meanwhile = meanwhile
        assert dg.materialize([self.delays], instance=self.instance, selection=[DELAYS]).success


def shipped() -> dg.AutomationCondition:
    (module,) = (m for m in load(ROOT / "pipelines").modules if m.NAME == "flights")
    return module.delays.automation_conditions_by_key[DELAYS]  # type: ignore[no-any-return]


def before_the_first_tick(below: Downstream) -> list[bool]:
    below.commit("flights:AA")
    return [below.tick()]


def while_a_run_of_it_is_in_progress(below: Downstream) -> list[bool]:
    below.tick()
    below.commit("flights:AA")
    asked = below.tick()
    below.run(meanwhile=lambda: (below.commit("flights:UA"), below.tick()))
    return [asked, below.tick()]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.mark.parametrize("batches", [before_the_first_tick, while_a_run_of_it_is_in_progress])
@pytest.mark.parametrize("forgets", [False, True])
def test_no_batch_is_forgotten(
    batches: Callable[[Downstream], list[bool]], forgets: bool, instance: dg.DagsterInstance
) -> None:
    """The ablation is the condition that one would write first."""
    below = Downstream(FORGETFUL if forgets else shipped(), instance)
    assert all(batches(below)) is not forgets


def test_a_batch_is_followed_once(instance: dg.DagsterInstance) -> None:
    below = Downstream(shipped(), instance)
    assert not below.tick(), "there is no table yet"
    below.commit("flights:AA")
    assert below.tick()
    below.run()
    assert not below.tick()
    assert not below.tick()


def test_a_run_that_fails_waits_for_the_next_batch(instance: dg.DagsterInstance) -> None:
    below = Downstream(shipped(), instance)
    below.commit("flights:AA")
    assert below.tick()  # and the run fails: nothing is materialized
    assert [below.tick() for _ in range(3)] == [False] * 3
    below.commit("flights:AA")
    assert below.tick()
