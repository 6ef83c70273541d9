"""The four things a plan can do, one object a step, as people look at them."""

from dataclasses import dataclass
from enum import IntEnum


class StepKind(IntEnum):
    """What a step does; the numbers are how plans store it."""

    RUN = 0
    FREE = 1
    COPY_OUT = 2
    COPY_IN = 3


@dataclass(frozen=True, slots=True)
class Run:
    """Run an op: allocate what it writes, run it. A second run of the same op is rematerialization."""

    op: int
    pairs: tuple[tuple[int, int], ...] = ()
    """In-place pairs taken: the read buffer dies here, its storage becomes the written one's."""


@dataclass(frozen=True, slots=True)
class Free:
    """Free a buffer's copy in a memory space; None is the buffer's home space."""

    buffer: int
    space: int | None = None


@dataclass(frozen=True, slots=True)
class CopyOut:
    """Copy a buffer from its home space to another one."""

    buffer: int
    space: int


@dataclass(frozen=True, slots=True)
class CopyIn:
    """Copy a buffer back to its home space from another one."""

    buffer: int
    space: int


Step = Run | Free | CopyOut | CopyIn
