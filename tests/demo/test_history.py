"""The story of a group as a table and as a picture."""

from dataclasses import replace
from io import BytesIO

import numpy as np

from rota.history import EpochSeen, HistoryMove, Moment, Span, Story, Tick, find_spans, list_moves
from rota.picture import COLOURS, REFUSED, draw_story


def epoch(number: int, at: float, *moves: tuple[str, str | None, str | None]) -> EpochSeen:
    made = tuple(HistoryMove(p, giver, taker, f"epoch {number}", at) for p, giver, taker in moves)
    return EpochSeen(number, at, f"Epoch {number}.", moves=made, moved=len(made), run_id=f"run{number}")


STORY = Story(
    "default",
    (
        epoch(1, 100.0, ("f-A", None, "w1"), ("f-B", None, "w2")),
        epoch(2, 110.0, ("f-B", "w2", "w1")),
        epoch(3, 130.0, ("f-A", "w1", "w3")),
    ),
    (Tick(105.0, "f-A", "r", 10), Tick(125.0, "f-B", "r", 10)),
    (Tick(135.0, "f-A", "z"),),
    (Moment(104.0, "w2 killed", "w2"),),
    140.0,
)


def share(png: bytes, colour: str) -> float:
    """The share of pixels that have this very colour."""
    from matplotlib.colors import to_rgb
    from matplotlib.image import imread

    pixels = imread(BytesIO(png))[:, :, :3]
    return float((np.abs(pixels - np.array(to_rgb(colour))).max(axis=2) < 0.02).mean())


def test_a_ribbon_changes_its_colour_where_the_epoch_was_published() -> None:
    assert find_spans(STORY) == {
        "f-A": [Span("f-A", "w1", 100.0, 130.0), Span("f-A", "w3", 130.0, 140.0)],
        "f-B": [Span("f-B", "w2", 100.0, 110.0), Span("f-B", "w1", 110.0, 140.0)],
    }


def test_where_old_epochs_are_gone_the_first_giver_held_it() -> None:
    assert find_spans(replace(STORY, epochs=STORY.epochs[1:]))["f-B"][0] == Span("f-B", "w2", 104.0, 110.0)


def test_the_frame_has_a_row_a_move() -> None:
    moves = list_moves(STORY)
    assert list(moves.columns) == ["epoch", "at", "partition", "from", "to", "reason", "sentence", "run_id"]
    assert moves["epoch"].tolist() == [1, 1, 2, 3]
    assert moves.loc[2, "from"] == "w2"
    assert str(moves["at"].dtype) == "datetime64[ns, UTC]"
    assert list_moves(Story("default", (), (), (), (), 1.0)).empty


def test_the_picture_shows_owners_by_area_and_refused_writes_in_red() -> None:
    png = draw_story(STORY)
    w1, w2, w3 = (share(png, c) for c in COLOURS[:3])
    assert w1 > w2 > 0
    assert w1 > w3 > 0
    assert share(png, REFUSED) > 0
    assert share(draw_story(replace(STORY, refused=())), REFUSED) == 0
    assert png == draw_story(STORY)


def test_an_empty_group_is_a_picture_too() -> None:
    assert draw_story(Story("default", (), (), (), (), 5.0)).startswith(b"\x89PNG")
