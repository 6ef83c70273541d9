"""What an integer counts: a name for every kind of position, so that a signature says which one it takes.

All of them are plain ints that count from 0; a type checker does not tell them apart, a reader does.
"""

from typing import TypeAlias

OpId: TypeAlias = int
"""An op of a graph, or of a net of named blobs: its position in program order."""
BufferId: TypeAlias = int
"""A buffer of a graph: its position among the buffers."""
SpaceId: TypeAlias = int
"""A memory space of a graph: its position in `Graph.spaces`."""
StepIndex: TypeAlias = int
"""A step of a plan: its position among the plan's steps; -1 where something holds before the first step."""
Place: TypeAlias = int
"""A position in an order of ops."""
Moment: TypeAlias = int
"""An instant of a base order: 2i lies right before what runs again for the op at place i, 2i + 1 is its first run."""
Section: TypeAlias = int
"""An interval of time in which nothing that is packed starts or ends; sections are numbered over time."""
