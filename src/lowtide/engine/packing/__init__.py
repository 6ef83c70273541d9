"""Assign byte offsets to buffers from their live ranges, with the smallest arena that is found.

Cheap methods run first: a bound, the skyline, the published rules. Parts above the bound are then improved by exact
search, a loop of priorities and ejection. Limits count examined items, so results are the same on every machine.
`validate`, independent of the search, checks every packing.
"""

from lowtide.engine.packing.buffers import FREE, Buffers
from lowtide.engine.packing.pack import Packed, PackedSpaces, Spill, pack
from lowtide.engine.packing.plan_addresses import Packing, pack_plan
from lowtide.engine.packing.spaces import pack_spaces

__all__ = ["FREE", "Buffers", "Packed", "PackedSpaces", "Packing", "Spill", "pack", "pack_plan", "pack_spaces"]
