"""The share of examples and cases that run: 10 % by default, all with LOWTIDE_SHARE_OF_EXAMPLES=1 (make test-all)."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")
SHARE = float(os.environ.get("LOWTIDE_SHARE_OF_EXAMPLES", "0.1"))


def examples(most: int) -> settings:
    """Return settings that draw `most` examples, or the share of them that the environment asks for."""
    return settings(max_examples=max(1, round(SHARE * most)))


def share_of(cases: Sequence[T], part: float = 1.0) -> list[T]:
    """Return the share of the cases that the environment asks for, `part` times as many, evenly spread."""
    n = min(len(cases), math.ceil(SHARE * (1 if SHARE >= 1 else part) * len(cases)))
    return [cases[k * len(cases) // n] for k in range(n)]


def folder_of_the_run(factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of a test run share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
