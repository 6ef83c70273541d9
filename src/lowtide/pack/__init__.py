"""From live ranges to addresses."""

from lowtide.pack.packing import Packing, pack_plan

__all__ = ["Packing", "pack_plan"]
