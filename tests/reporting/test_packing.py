"""What is said of a packing: proven and not found are never mixed up; the picture shows every buffer."""

from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.engine.packing import Buffers, Packed
from lowtide.reporting.export.svg import packing_svg
from lowtide.reporting.packing import packed_to_json, packed_to_text
from lowtide.reporting.shortfall import describe_packing

FIVE = Buffers([0, 3, 0, 9, 0], [3, 9, 9, 21, 21], [4] * 5, names="abcde", gaps=[[4, 5, 7]])
SVG = "{http://www.w3.org/2000/svg}"


def packed(**changes: Any) -> Packed:
    """Return a packing of the five buffers one above the other."""
    fields = {
        "offsets": np.arange(5) * 4,
        "arena_bytes": 20,
        "lower_bound_bytes": 12,
        "status": "feasible",
        "bound_holders": (0, 2, 4),
        "conflict": (),
        "method": "stacked",
        "work": 5,
    }
    return Packed(**{**fields, **changes})


def test_what_fits_or_has_no_capacity_misses_nothing() -> None:
    assert describe_packing(FIVE, packed(), None) is None
    assert describe_packing(FIVE, packed(), 20) is None


def test_a_proof_names_the_buffers_that_cannot_fit() -> None:
    said = describe_packing(FIVE, packed(status="infeasible", conflict=(0, 2, 4)), 11)
    assert said == "proven: no packing fits 11 bytes; these cannot fit together: a, c, e"


def test_many_names_are_cut_short() -> None:
    many = Buffers([0] * 99, [1] * 99, [1] * 99)
    outcome = packed(offsets=np.arange(99), arena_bytes=99, status="infeasible", conflict=tuple(range(99)))
    said = describe_packing(many, outcome, 98)
    assert said is not None
    assert said.endswith("0, 1, 2, 3, 4, 5, 6, 7 and 91 more")


@pytest.mark.parametrize("status", ["stopped_by_work", "interrupted", "feasible"])
def test_without_a_proof_none_is_claimed(status: str) -> None:
    said = describe_packing(FIVE, packed(status=status), 12)
    assert said == "no packing into 12 bytes found, the best needs 8 more; not proven impossible"


def test_text_and_json_say_the_same() -> None:
    outcome = packed(status="interrupted")
    fields = packed_to_json(FIVE, outcome, 12, 0.5)
    text = packed_to_text("five\x1b.csv", FIVE, outcome, 12, 0.5)
    assert (fields["status"], fields["bound_holders"], fields["optimal"]) == ("interrupted", ["a", "c", "e"], False)
    for part in ("five\\x1b.csv: 5 buffers, interrupted, method stacked", "20 bytes", "66.7 %", "12 bytes", "0.50 s"):
        assert part in text
    assert fields["shortfall"] in text


def test_the_picture_has_a_rectangle_for_every_live_piece_at_its_place() -> None:
    root = ElementTree.fromstring(packing_svg("five", FIVE, packed(), 24))
    boxes = [box for box in root.iter(f"{SVG}rect") if box.find(f"{SVG}title") is not None]
    titles = [box.findtext(f"{SVG}title") for box in boxes]
    assert titles == [
        "a: 4 bytes at 0, steps 0 to 3",
        "b: 4 bytes at 4, steps 3 to 9",
        "c: 4 bytes at 8, steps 0 to 9",
        "d: 4 bytes at 12, steps 9 to 21",
        "e: 4 bytes at 16, steps 0 to 21",
        "e: 4 bytes at 16, steps 0 to 21",
    ]
    left, right = (float(boxes[k].attrib["x"]) for k in (4, 5))
    width = float(boxes[4].attrib["width"])
    assert left + width < right  # the gap is left white
    lows = [float(box.attrib["y"]) for box in boxes]
    assert lows == sorted(lows, reverse=True)
    assert {line.attrib["class"] for line in root.iter(f"{SVG}line")} == {"bound", "capacity"}


def test_a_picture_of_a_hundred_thousand_buffers_stays_small_and_keeps_the_largest_names() -> None:
    n = 100_000
    first = np.arange(n)
    buffers = Buffers(first, first + 3, np.where(first == 500, 10**6, 10), names=map("b{}".format, range(n)))
    outcome = packed(offsets=first % 3 * 10, arena_bytes=10**6 + 20, lower_bound_bytes=10, bound_holders=())
    picture = packing_svg("many", buffers, outcome)
    assert len(picture) < 2_000_000
    assert b"<title>b500: 1000000 bytes" in picture
    ElementTree.fromstring(picture)


def test_a_picture_of_nothing_is_a_picture() -> None:
    nothing = packed(offsets=np.zeros(0, np.int64), arena_bytes=0, lower_bound_bytes=0, bound_holders=())
    ElementTree.fromstring(packing_svg("nothing", Buffers([], [], []), nothing))


@given(st.text(min_size=1), st.integers(-(2**62), 2**62 - 1), st.integers(0, 2**60))
def test_any_name_and_any_figures_give_valid_xml(name: str, first: int, size: int) -> None:
    buffers = Buffers([first], [2**62], [size], names=[name])
    outcome = packed(offsets=np.zeros(1, np.int64), arena_bytes=size, lower_bound_bytes=size, bound_holders=(0,))
    ElementTree.fromstring(packing_svg(name, buffers, outcome, 2**62))
