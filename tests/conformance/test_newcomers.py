"""Of two pipeline files that collide the one that runs is served, whatever their alphabetical order."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.catalog import Catalog, load
from rota.coordination.group_state import GroupState
from rota.coordination.store import Store
from rota.errors import Unavailable
from simulator.memory_store import MemoryServer

FILE = """
from rota import Group, Pipeline, delta, files
group = Group("night", budget={budget})
pipeline = Pipeline(source=files("{name}", format="csv", schema="a int"), table=delta("t/{table}"), group="night")
"""


class Folder:
    """Pipeline files, and the ZooKeeper of their group."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.server, self.asked = folder, MemoryServer(), 0

    def write(self, name: str, budget: object = None, table: str = "") -> None:
        (self.folder / f"{name}.py").write_text(FILE.format(name=name, budget=budget, table=table or name))

    @contextmanager
    def ask(self) -> Iterator[Store]:
        self.asked += 1
        yield self.server.connect()

    @contextmanager
    def ask_in_vain(self) -> Iterator[Store]:
        raise Unavailable("No ZooKeeper at nowhere:1. Start one")
        yield

    def serve(self) -> Catalog:
        """Loads the files, and whatever is served begins to run: its group knows a partition of it."""
        catalog = load(self.folder, self.ask)
        for name, pipeline in catalog.pipelines.items():
            tree = GroupState(self.server.connect(), pipeline.group)
            tree.found(budget=catalog.groups[pipeline.group].budget)
            tree.grow(name, ["x"])
        return catalog


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_two_files_that_declare_a_group_alike_are_both_served(folder: Folder) -> None:
    """A copy of a file took the original out of service."""
    folder.write("orders", budget=3)
    folder.write("bills", budget=3)
    catalog = load(folder.folder, folder.ask)
    assert list(catalog.pipelines) == ["bills", "orders"]
    assert not catalog.unserved
    assert folder.asked == 0, "nothing collides"


def test_a_copy_that_declares_the_group_otherwise_is_refused_and_the_original_goes_on(folder: Folder) -> None:
    folder.write("orders", budget=3)
    folder.serve()
    folder.write("bills", budget=7)
    catalog = folder.serve()
    assert list(catalog.pipelines) == ["orders"]
    assert catalog.groups["night"].budget == 3
    assert (
        "declares group 'night' otherwise than orders.py, which stays. Declare both alike"
        in catalog.refused["bills.py"]
    )
    assert folder.asked == 1


def test_of_two_that_run_both_are_served_with_the_settings_of_the_elder(folder: Folder) -> None:
    folder.write("orders", budget=3)
    folder.serve()
    folder.write("bills", budget=3)
    folder.serve()
    folder.write("bills", budget=7)
    catalog = folder.serve()
    assert list(catalog.pipelines) == ["bills", "orders"]
    assert catalog.groups["night"].budget == 3
    assert not catalog.refused
    assert "Its pipeline runs, and is served by the group as that file declares it" in catalog.left_out["bills.py"]


def test_a_file_of_groups_alone_is_served_while_its_settings_are_in_force(folder: Folder) -> None:
    (folder.folder / "zz_groups.py").write_text("from rota import Group\nnight = Group('night', budget=3)\n")
    folder.write("orders", budget=3)
    folder.serve()
    folder.write("orders", budget=7)
    catalog = folder.serve()
    assert list(catalog.pipelines) == ["orders"]
    assert catalog.groups["night"].budget == 3
    assert "otherwise than zz_groups.py" in catalog.left_out["orders.py"]
    folder.write("orders", budget=3)
    (folder.folder / "a_groups.py").write_text("from rota import Group\nnight = Group('night', budget=9)\n")
    catalog = folder.serve()
    assert list(catalog.refused) == ["a_groups.py"]
    assert catalog.groups["night"].budget == 3


def test_of_two_files_with_one_table_that_is_not_there_yet_the_one_that_runs_is_served(folder: Folder) -> None:
    """It has partitions, and nothing was consumed yet."""
    folder.write("orders")
    folder.serve()
    folder.write("bills", table="orders")
    catalog = folder.serve()
    assert list(catalog.pipelines) == ["orders"]
    assert "is the one of pipeline 'orders'" in catalog.refused["bills.py"]


def test_if_it_is_unknown_which_one_runs_the_first_by_name_stays_and_the_error_states_that(folder: Folder) -> None:
    folder.write("orders", budget=3)
    folder.serve()
    folder.write("bills", budget=7)
    catalog = load(folder.folder, folder.ask_in_vain)
    assert list(catalog.pipelines) == ["bills"]
    assert "which of them runs is unknown: No ZooKeeper at nowhere:1" in catalog.refused["orders.py"]
    assert list(load(folder.folder, folder.ask_in_vain).pipelines) == ["bills"], "each time"
