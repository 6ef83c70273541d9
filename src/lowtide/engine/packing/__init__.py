"""From live ranges to addresses."""

from lowtide.engine.packing.buffers import FREE, Buffers
from lowtide.engine.packing.pack import pack
from lowtide.engine.packing.packed import Packed, PackedSpaces, Spill
from lowtide.engine.packing.plan_addresses import Packing, pack_plan
from lowtide.engine.packing.spaces import pack_spaces

__all__ = ["FREE", "Buffers", "Packed", "PackedSpaces", "Packing", "Spill", "pack", "pack_plan", "pack_spaces"]
