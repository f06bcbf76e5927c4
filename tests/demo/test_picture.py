"""The picture of a group's history, with few partitions and with many, and with names of any script."""

import sys
from dataclasses import replace
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from rota.coordination.records import Epoch, Moved
from rota.errors import ConfigError
from rota.face.history import Moment, Story, Tick
from rota.face.picture import COLOURS, PAPER, REFUSED, draw_story, make_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def epoch(number: int, at: float, *moves: tuple[str, str | None, str | None]) -> Epoch:
    made = tuple(
        Moved.model_construct(partition=p, from_worker=giver, to_worker=taker, reason=f"epoch {number}", at=None)
        for p, giver, taker in moves
    )
    return Epoch(epoch=number, at=at, sentence=f"Epoch {number}.", moved=len(made)).model_copy(update={"moves": made})


def tell(*partitions: str, dropped: tuple[str, ...] = ()) -> Story:
    """w1 gets all partitions; halfway w2 joins and gets every other one, and some are dropped."""
    first = epoch(1, 100.0, *((p, None, "w1") for p in partitions))
    second = epoch(2, 150.0, *((p, "w1", "w2") for p in partitions[::2])).model_copy(update={"dropped": dropped})
    return Story("default", (first, second), (), (), (Moment(150.0, "w2 joined"),), 200.0)


SMALL = replace(
    tell("f:A", "f:B"),
    epochs=(epoch(1, 100.0, ("f:A", None, "w1"), ("f:B", None, "w2")), epoch(2, 110.0, ("f:B", "w2", "w1"))),
    commits=(Tick(105.0, "f:A", "r", 10),),
    refused=(Tick(135.0, "f:A", "z"),),
    moments=(Moment(104.0, "w2 killed", "w2"),),
)


def share(png: bytes, colour: str) -> float:
    """The share of pixels that have this very colour."""
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    pixels = imread(BytesIO(png))[:, :, :3]
    return float((np.abs(pixels - np.array(to_rgb(colour))).max(axis=2) < 0.02).mean())


def list_names(figure: "Figure") -> list[str]:
    """The names beside the ribbons, from above, of a picture in which no two touch and none is cut off."""
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert all(above.y0 >= below.y1 for above, below in pairwise(boxes)), "two names touch"
    assert all(box.x0 >= 0 for box in boxes), "a name is cut off"
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]


def test_the_picture_shows_owners_by_area_and_refused_writes_in_red() -> None:
    png = draw_story(SMALL)
    w1, w2 = (share(png, c) for c in COLOURS[:2])
    assert w1 > w2 > 0
    assert share(png, REFUSED) > 0
    assert share(draw_story(replace(SMALL, refused=())), REFUSED) == 0
    assert png == draw_story(SMALL)


def test_an_empty_group_is_a_picture_too() -> None:
    assert draw_story(Story("default", (), (), (), (), 5.0)).startswith(b"\x89PNG")


@pytest.mark.parametrize(("inches", "title"), [(13.0, ""), (6.0, None)])
@pytest.mark.parametrize("count", [1, 82, 1000])
def test_names_are_readable_however_many_partitions_there_are(count: int, inches: float, title: str | None) -> None:
    """Above 64 partitions there was no name at all."""
    partitions = [f"flights:P{i:04}" for i in range(count)]
    figure = make_figure(tell(*partitions), title, inches=inches)
    names = list_names(figure)
    assert names[0] == partitions[0]
    assert set(names) <= set(partitions)
    said = figure.axes[0].get_xlabel()
    if count <= 82:
        assert names == partitions
        assert "name" not in said
    else:
        step = partitions.index(names[1])
        assert f"1 of {step} names is shown" in said


@pytest.mark.parametrize("count", [1, 82, 300])
def test_the_picture_is_no_frame_of_white(count: int) -> None:
    """Its margins were shares of the height: of 82 partitions a third was white."""
    story = tell(*(f"f:{i}" for i in range(count)))
    figure = make_figure(story)
    box, (_, height) = figure.axes[0].get_position(), figure.get_size_inches()
    assert (1 - box.height) * height < 2.0
    assert share(draw_story(story), PAPER) < (0.3 if count > 64 else 0.75)


def test_the_names_of_many_workers_are_all_in_the_picture() -> None:
    moves = [(f"f:{i}", None, f"worker-number-{i:03}") for i in range(40)]
    figure = make_figure(Story("default", (epoch(1, 100.0, *moves),), (), (), (), 200.0))
    figure.canvas.draw()
    legend = figure.axes[0].get_legend()
    assert legend is not None
    box, around = legend.get_window_extent(), figure.bbox
    assert box.x0 >= 0
    assert box.y0 >= 0
    assert box.x1 <= around.x1


def test_a_partition_that_left_has_no_owners_colour_any_more() -> None:
    names = [f"f:{i}" for i in range(20)]
    still, gone = draw_story(tell(*names)), draw_story(tell(*names, dropped=tuple(names[1::2])))
    assert share(gone, COLOURS[0]) < 0.7 * share(still, COLOURS[0])


def test_a_name_that_no_font_can_write_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was a row of boxes, and a warning of the font for each letter."""
    from matplotlib.font_manager import fontManager

    own = [f for f in fontManager.ttflist if f.name.startswith(("DejaVu", "Last Resort"))]  # the latter has boxes alone
    monkeypatch.setattr(fontManager, "ttflist", own)
    figure = make_figure(tell("f:Zürich", "f:東京"), "東京 moved")
    assert list_names(figure) == ["f:Zürich", r"f:\u6771\u4eac"]
    assert figure.texts[0].get_text() == r"\u6771\u4eac moved"


def test_a_name_is_written_in_a_font_that_has_its_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fontTools.ttLib import TTFont
    from matplotlib.font_manager import findfont, fontManager

    made = TTFont(findfont("DejaVu Sans"))
    for table in made["cmap"].tables:
        table.cmap.update({ord(letter): "A" for letter in "東京" if table.isUnicode()})
    for record in made["name"].names:
        record.string = "Tokyo"
    made.save(tmp_path / "tokyo.ttf")
    monkeypatch.setattr(fontManager, "ttflist", [f for f in fontManager.ttflist if f.name.startswith("DejaVu")])
    fontManager.addfont(tmp_path / "tokyo.ttf")
    assert list_names(make_figure(tell("f:東京"))) == ["f:東京"]


def test_dollars_in_a_name_are_no_formula() -> None:
    assert list_names(make_figure(tell("f:$a^", "f:cost$x_$"), "$y^$")) == ["f:$a^", "f:cost$x_$"]


def test_a_long_name_leaves_room_for_its_ribbon() -> None:
    story = tell("f:" + "x" * 118, "f:" + "y" * 118)
    figure = make_figure(story)
    assert len(set(list_names(figure))) == 2
    assert figure.axes[0].get_position().width > 0.6


def test_without_matplotlib_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        ConfigError, match=r"^A picture needs the library matplotlib. Type: pip install 'matplotlib>=3.9'"
    ):
        draw_story(SMALL)
