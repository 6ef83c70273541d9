"""From live ranges to addresses."""

from lowtide.packing.buffers import FREE, Buffers
from lowtide.packing.pack import pack
from lowtide.packing.packed import Packed
from lowtide.packing.plan_addresses import Packing, pack_plan

__all__ = ["FREE", "Buffers", "Packed", "Packing", "pack", "pack_plan"]
