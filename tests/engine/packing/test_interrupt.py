"""Ctrl-C at any time of packing returns a valid, marked packing."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import pytest

from lowtide.engine.packing import Buffers, pack
from lowtide.engine.packing.csv_file import read_buffer_file
from lowtide.engine.packing.validate import validate
from tests.oracles.random_buffers import plain_buffers

HARD = Path(__file__).parents[2] / "data/buffers/cut_1015.csv"


class _CtrlC:
    """Raise KeyboardInterrupt at the n-th line that runs in the packers, once."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        file = frame.f_code.co_filename
        if "/lowtide/engine/packing/" not in file or file.endswith("/pack.py"):
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self


@contextmanager
def _ctrl_c_after_computing(seconds: float) -> Iterator[None]:
    """Press Ctrl-C after this process time, independent of other load."""
    signal.signal(signal.SIGPROF, lambda *_: signal.raise_signal(signal.SIGINT))
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)


@pytest.mark.parametrize("capacity", [None, 12])
def test_at_any_line_of_the_packers_a_sound_packing_is_returned(capacity: int | None) -> None:
    random, interrupted = Random(0), 0
    for seed in range(60):
        buffers = plain_buffers(seed)
        ctrl_c = _CtrlC(random.randint(1, random.choice([30, 300, 1500])))
        before = sys.gettrace()
        sys.settrace(ctrl_c)
        try:
            packed = pack(buffers, capacity=capacity)
        finally:
            sys.settrace(before)
        validate(buffers, packed.offsets)
        if ctrl_c.left <= 0:
            assert packed.status in ("interrupted", "optimal", "infeasible")
            interrupted += packed.status == "interrupted"
    assert interrupted > 0


@pytest.mark.usefixtures("ctrl_c_heeded")
def test_within_a_kernel_the_best_packing_so_far_is_returned() -> None:
    """The search is long; the signal comes while a kernel runs without the interpreter's lock."""
    buffers = read_buffer_file(HARD).buffers
    with _ctrl_c_after_computing(1.0):
        packed = pack(buffers, effort="max")
    assert packed.status == "interrupted"
    validate(buffers, packed.offsets, packed.arena_bytes)
    assert packed.arena_bytes <= pack(buffers, method="best-fit-by-size").arena_bytes


def test_before_anything_was_found_a_quick_packing_is_returned_whatever_the_constraints() -> None:
    random = Random(2)
    n = 30_000
    first = [random.randrange(n) for _ in range(n)]
    buffers = Buffers(first, [step + 5 for step in first], [8] * n, alignment=8, gaps=[[0, first[0] + 1, first[0] + 2]])

    ctrl_c = _CtrlC(1)
    before = sys.gettrace()
    sys.settrace(ctrl_c)
    try:
        packed = pack(buffers)
    finally:
        sys.settrace(before)
    validate(buffers, packed.offsets, packed.arena_bytes)
    assert (packed.status, packed.method) == ("interrupted", "stacked")


@pytest.mark.usefixtures("ctrl_c_heeded")
def test_a_rule_that_looks_at_every_pair_stops_soon() -> None:
    """Placing all buffers would take minutes, because one has a gap."""
    n = 200_000
    buffers = Buffers([0] * n, [9] * n, [8] * n, gaps=[[0, 3, 4]])
    with _ctrl_c_after_computing(1.0):
        packed = pack(buffers)
    assert (packed.status, packed.method, packed.arena_bytes) == ("optimal", "stacked", 8 * n)
