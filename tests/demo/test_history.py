"""The story of a group as a table."""

from dataclasses import replace

from rota.coordination.records import Epoch, Moved
from rota.face.history import Moment, Span, Story, Tick, find_spans, keep_partition, list_moves


def epoch(number: int, at: float, *moves: tuple[str, str | None, str | None]) -> Epoch:
    made = tuple(
        Moved.model_construct(partition=p, from_worker=giver, to_worker=taker, reason=f"epoch {number}", at=None)
        for p, giver, taker in moves
    )
    return Epoch(epoch=number, at=at, sentence=f"Epoch {number}.", moves=made, moved=len(made), run_id=f"run{number}")


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


def test_a_partition_that_was_dropped_is_nobodys_since() -> None:
    """The last owner keeps it until the end, because no move reports it."""
    gone = epoch(4, 133.0).model_copy(update={"dropped": ("f-A",)})
    back = epoch(5, 137.0, ("f-A", None, "w1"))
    shown = [Span("f-A", "w1", 100.0, 130.0), Span("f-A", "w3", 130.0, 133.0)]
    assert find_spans(replace(STORY, epochs=(*STORY.epochs, gone)))["f-A"] == [*shown, Span("f-A", None, 133.0, 140.0)]
    again = [*shown, Span("f-A", None, 133.0, 137.0), Span("f-A", "w1", 137.0, 140.0)]
    assert find_spans(replace(STORY, epochs=(*STORY.epochs, gone, back)))["f-A"] == again


def test_of_one_partition_only_what_happened_to_it_is_shown() -> None:
    story = keep_partition(STORY, "f-B")
    assert [(e.epoch, [m.partition for m in e.moves]) for e in story.epochs] == [(1, ["f-B"]), (2, ["f-B"])]
    assert [tick.partition for tick in story.commits] == ["f-B"]
    assert story.refused == ()
    assert list(find_spans(story)) == ["f-B"]
