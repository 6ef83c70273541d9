"""The path through the code that the docs describe is the one that a program takes."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import lowtide
from lowtide.torch import measure

PAGE = Path(__file__).parents[3] / "docs" / "reading_the_code.md"
STOP = re.compile(r"^\d+\. `(.+?)` `(.+?)`", re.MULTILINE)


def _first_calls() -> list[tuple[str, str]]:
    """Run the page's program; return the functions of lowtide that it enters, by file, in the order of first calls."""
    source = Path(lowtide.__file__).parent
    entered: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _value: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(source)):
            entered.setdefault((Path(code.co_filename).relative_to(source).as_posix(), code.co_qualname))

    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 64), torch.nn.GELU())
    batch = torch.randn(64, 32)
    fast = torch.compile(model, backend="lowtide", options={"compiler": "eager", "budget": "80%"})

    def step() -> None:
        fast(batch).sum().backward()

    sys.setprofile(note)
    try:
        measure(step, state=[model])
    finally:
        sys.setprofile(None)
    return list(entered)


def test_the_page_names_functions_in_the_order_in_which_they_are_first_called() -> None:
    stops = STOP.findall(PAGE.read_text(encoding="utf-8"))
    taken = _first_calls()
    assert stops == sorted(stops, key=taken.index)
    assert len(stops) == len(set(stops)) > 20
