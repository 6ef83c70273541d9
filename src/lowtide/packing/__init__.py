"""From live ranges to addresses."""

from lowtide.packing.buffers import FREE, Buffers
from lowtide.packing.pack import pack
from lowtide.packing.packed import Packed, PackedSpaces, Spill
from lowtide.packing.plan_addresses import Packing, pack_plan
from lowtide.packing.spaces import pack_spaces

__all__ = ["FREE", "Buffers", "Packed", "PackedSpaces", "Packing", "Spill", "pack", "pack_plan", "pack_spaces"]
