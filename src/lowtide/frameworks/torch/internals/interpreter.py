"""The Python interpreter: running frames and global random generators."""
# pyright: reportPrivateUsage=false, reportFunctionMemberAccess=false

import random
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np


def running_frames() -> Iterator[FrameType]:
    """Yield the frames of this thread, innermost first."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def global_generators() -> tuple[random.Random, np.random.RandomState]:
    """Return the generators of `random` and `numpy.random`."""
    python: Any = random.random.__self__
    numpy: Any = np.random.random.__self__
    return python, numpy


def bits_of(generator: Any) -> Any:
    return generator._bit_generator if isinstance(generator, np.random.RandomState) else generator.bit_generator
