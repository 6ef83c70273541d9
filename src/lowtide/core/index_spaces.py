"""Names for integer positions, so that a signature shows which kind of position it takes.

All are plain ints counted from 0; a type checker does not distinguish them.
"""

from typing import TypeAlias

OpId: TypeAlias = int
"""An op of a graph, or of a net of named blobs: its position in program order."""
BufferId: TypeAlias = int
"""A buffer of a graph: its position among the buffers."""
SpaceId: TypeAlias = int
"""A memory space of a graph: its position in `Graph.spaces`."""
StepIndex: TypeAlias = int
"""A step of a plan: its position among the steps, or -1 for the time before the first step."""
Place: TypeAlias = int
"""A position in an order of ops."""
Moment: TypeAlias = int
"""An instant of a base order: 2i is just before the ops recomputed for place i, 2i + 1 is the first run at place i."""
Section: TypeAlias = int
"""A time interval in which no packed item starts or ends; sections are numbered over time."""
