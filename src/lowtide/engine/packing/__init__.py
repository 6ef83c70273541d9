"""Assign byte offsets to buffers from their live ranges, with the smallest arena that is found.

`pack` places the buffers of one memory space, `pack_spaces` those of several, and `pack_plan` those of a plan. Buffers
that must keep their distance become one rigid item. Time is divided into sections, in which no item starts or ends. The
search runs cheap methods first: a bound, the skyline, the published rules. Then it splits the items into parts that
share no section, and improves the parts above the bound by exact search and by a loop of priorities. Every limit counts
items examined, never seconds, so that results are the same on every machine.

`validate` shares no code with the search and checks every packing before it is returned.
"""

from lowtide.engine.packing.buffers import FREE, Buffers
from lowtide.engine.packing.pack import pack
from lowtide.engine.packing.packed import Packed, PackedSpaces, Spill
from lowtide.engine.packing.plan_addresses import Packing, pack_plan
from lowtide.engine.packing.spaces import pack_spaces

__all__ = ["FREE", "Buffers", "Packed", "PackedSpaces", "Packing", "Spill", "pack", "pack_plan", "pack_spaces"]
