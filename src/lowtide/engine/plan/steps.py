"""The four things a plan can do, one object a step, as people look at them."""

from dataclasses import dataclass
from enum import IntEnum

from lowtide.core.index_spaces import BufferId, OpId, SpaceId


class StepKind(IntEnum):
    """What a step does; the numbers are how plans store it."""

    RUN = 0
    FREE = 1
    COPY_OUT = 2
    COPY_IN = 3


@dataclass(frozen=True, slots=True)
class Run:
    """Run an op: allocate what it writes, run it. A second run of the same op is rematerialization."""

    op: OpId
    pairs: tuple[tuple[BufferId, BufferId], ...] = ()
    """In-place pairs taken: the read buffer dies here, its storage becomes the written one's."""


@dataclass(frozen=True, slots=True)
class Free:
    """Free a buffer's copy in a memory space; None is the buffer's home space."""

    buffer: BufferId
    space: SpaceId | None = None


@dataclass(frozen=True, slots=True)
class CopyOut:
    """Copy a buffer from its home space to another one."""

    buffer: BufferId
    space: SpaceId


@dataclass(frozen=True, slots=True)
class CopyIn:
    """Copy a buffer back to its home space from another one."""

    buffer: BufferId
    space: SpaceId


Step = Run | Free | CopyOut | CopyIn
