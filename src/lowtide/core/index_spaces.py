"""Names for integer positions in signatures."""

from typing import TypeAlias

OpId: TypeAlias = int
"""An op of a graph or net, in program order."""
BufferId: TypeAlias = int
SpaceId: TypeAlias = int
"""A memory space in `Graph.spaces`."""
StepIndex: TypeAlias = int
"""A plan's step; -1 is before the first."""
Place: TypeAlias = int
"""A position in an order of ops."""
Moment: TypeAlias = int
"""An instant of a base order: 2i precedes the ops recomputed for place i, 2i + 1 is the first run at place i."""
Section: TypeAlias = int
"""A time interval in which no packed item starts or ends."""
