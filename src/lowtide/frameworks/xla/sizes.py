"""Bytes of shapes: element types down to half a byte, padding to tiles, pointers for tuples, memory spaces."""

import math
import re
from functools import lru_cache

from lowtide.frameworks.xla.text.shape import HloShape

POINTER_BYTES = 8
"""What a tuple takes for each of its elements, on every platform that XLA runs on today."""

_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "tf32": 32, "c64": 64, "c128": 128}
_NUMBERED = re.compile(r"[sufc](\d{1,3})(e\d+m\d+\w*)?")
_TILE = re.compile(r"\(([\d,* ]*)\)")
_SETTINGS = re.compile(r"([A-Z])((?:\([^()]*\))+)")


def known_dtype(dtype: str) -> bool:
    """Whether the size of an element type is known."""
    return dtype in _BITS or _NUMBERED.fullmatch(dtype) is not None


@lru_cache(maxsize=2**14)
def own_bytes(shape: HloShape, pointer_bytes: int = POINTER_BYTES) -> int:
    """Return the bytes of an array as its layout has it, or of a tuple's table of pointers, elements not counted.

    Elements smaller than a byte take a whole one unless the layout packs them (`E(4)`). Dimensions are padded to whole
    tiles (`T(8,128)`), the number of elements to a whole tail (`L(1024)`). A dimension without a bound counts as none.
    """
    if shape.is_tuple:
        return pointer_bytes * len(shape.elements)
    settings = layout_settings(shape)
    dims = [dim or 0 for dim in shape.dims]
    if "T" in settings:
        order = [int(dim) for dim in shape.layout.partition(":")[0].split(",") if dim.strip().isdigit()]
        if sorted(order) == list(range(len(dims))):
            dims = [dims[dim] for dim in reversed(order)]
        for tile in _TILE.findall(settings["T"]):
            dims = _tiled(dims, tile)
    count = math.prod(dims)
    tail = _number(settings.get("L"), 1)
    count = -(-count // tail) * tail if tail else count
    bits = _number(settings.get("E"), 0) or max(_bits(shape.dtype), 8 if _bits(shape.dtype) else 0)
    return -(-count * bits // 8)


def memory_space(shape: HloShape) -> int:
    """Return the number of the memory space that a layout names, 0 where it names none."""
    if "S(" not in shape.layout:
        return 0
    return _number(layout_settings(shape).get("S"), 0)


def layout_settings(shape: HloShape) -> dict[str, str]:
    """Return the settings behind the dimensions of a layout, by letter, with their parentheses: {"T": "(8,128)"}."""
    _, colon, text = shape.layout.partition(":")
    return dict(_SETTINGS.findall(text)) if colon else {}


def _tiled(dims: list[int], tile: str) -> list[int]:
    """Return dimensions split into whole tiles: those that count tiles, then those of the tile."""
    sizes = [part.strip() for part in tile.split(",") if part.strip()]
    if not sizes:
        return dims
    dims = [1] * (len(sizes) - len(dims)) + dims
    outer, inner = dims[: len(dims) - len(sizes)], dims[len(dims) - len(sizes) :]
    rest = 1
    merged: list[tuple[int, int]] = []
    for dim, size in zip(inner, sizes, strict=True):
        if size == "*":  # this dimension is merged with the next one before that is tiled
            rest *= dim
        else:
            merged.append((rest * dim, min(int(size[:18]), 2**62) or 1))
            rest = 1
    return [*outer, *([rest] if rest > 1 else []), *(-(-dim // size) for dim, size in merged), *(s for _, s in merged)]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    found = _NUMBERED.fullmatch(dtype)
    if found is None:
        return 0
    return int(found[1])


def _number(text: str | None, default: int) -> int:
    digits = (text or "").strip("() ")
    return int(digits) if digits.isdigit() and len(digits) < 19 else default
