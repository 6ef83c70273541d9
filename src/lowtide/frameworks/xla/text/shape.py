"""Shapes, their bytes and memory spaces."""

import math
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.text.brackets import end_of_group, split_top

POINTER_BYTES = 8
_TUPLE = "tuple"
_MAX_DEPTH = 64
_ARRAY = re.compile(r"(b\()?\s*([a-zA-Z]\w*)\[([^\]]*)\]")
_DIMENSION = re.compile(r"\s*(<=)?\s*(\d{1,18}|\?)\s*")
_BITS = {"pred": 8, "token": 0, "opaque": 0, "bf16": 16, "tf32": 32, "c64": 64, "c128": 128}
_NUMBERED = re.compile(r"[sufc](\d{1,3})(e\d+m\d+\w*)?")
_TILE = re.compile(r"\(([\d,* ]*)\)")
_SETTINGS = re.compile(r"([A-Z])((?:\([^()]*\))+)")


@dataclass(frozen=True)
class HloShape:
    dtype: str
    """XLA's name in lower case: "f32", "pred", "token", "tuple"."""
    dims: tuple[int | None, ...] = ()
    """A dynamic dimension has its upper bound, or None."""
    layout: str = ""
    """The text in braces after the dimensions: "1,0:T(8,128)S(1)"."""
    elements: tuple["HloShape", ...] = ()

    @property
    def is_tuple(self) -> bool:
        return self.dtype == _TUPLE

    @cached_property
    def parts(self) -> tuple["HloShape", ...]:
        """The shape and all shapes in it, in preorder."""
        return (self, *(part for element in self.elements for part in element.parts))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each element begins in `parts`, then the end."""
        places = [1]
        for element in self.elements:
            places.append(places[-1] + len(element.parts))
        return tuple(places)

    @cached_property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """The index of each part: () for the shape, (0, 1) for an element of an element."""
        below = ((place, index) for place, element in enumerate(self.elements) for index in element.indices)
        return ((), *((place, *index) for place, index in below))


@lru_cache(maxsize=2**14)
def parse_shape(text: str) -> HloShape:
    return _whole_shape(text, 0)


def end_of_shape(text: str, start: int) -> int:
    if text.startswith("(", start):
        return end_of_group(text, start)
    found = _ARRAY.match(text, start)
    if found is None:
        raise MalformedInputError(f"{text[start : start + 80]!r} does not begin with a shape")
    end = found.end()
    if text.startswith("{", end):
        end = end_of_group(text, end)
    if found[1]:
        closing = text.find(")", end)
        if closing < 0:
            raise MalformedInputError(f"the shape {text[start : start + 80]!r} has no end")
        end = closing + 1
    return end


def is_known_dtype(dtype: str) -> bool:
    return dtype in _BITS or _NUMBERED.fullmatch(dtype) is not None


@lru_cache(maxsize=2**14)
def own_bytes(shape: HloShape, pointer_bytes: int = POINTER_BYTES) -> int:
    """Return the bytes of an array, or of a tuple's table without its elements.

    Elements are at least a byte, unless packed (`E(4)`). Dimensions are padded to tiles (`T(8,128)`), the number of
    elements to a tail (`L(1024)`). An unbounded dimension counts as zero.
    """
    if shape.is_tuple:
        return pointer_bytes * len(shape.elements)
    settings = _layout_settings(shape)
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
    """Return the memory space in the layout (`S(1)`), 0 by default."""
    return _number(_layout_settings(shape).get("S"), 0) if "S(" in shape.layout else 0


def _shape(text: str, depth: int) -> tuple[HloShape, int]:
    if depth > _MAX_DEPTH:
        raise MalformedInputError(f"a shape nests tuples more than {_MAX_DEPTH} deep")
    end = end_of_shape(text, 0)
    if text.startswith("("):
        inner = [part.strip() for part in split_top(text[1 : end - 1])]
        return HloShape(_TUPLE, elements=tuple(_whole_shape(part, depth + 1) for part in inner if part)), end
    found = _ARRAY.match(text)
    assert found is not None  # noqa: S101  # matched by end_of_shape
    layout = text[found.end() : end].rstrip(")") if found[1] else text[found.end() : end]
    return HloShape(found[2].lower(), tuple(_dimensions(found[3])), layout.strip("{} ")), end


def _whole_shape(text: str, depth: int) -> HloShape:
    shape, end = _shape(text, depth)
    if text[end:].strip():
        raise MalformedInputError(f"{text!r} has more text after its shape")
    return shape


def _dimensions(text: str) -> list[int | None]:
    if not text.strip():
        return []
    found = [_DIMENSION.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise MalformedInputError(f"[{text}] has a dimension that is no number below 10^18")
    return [None if part is None or part[2] == "?" else int(part[2]) for part in found]


def _layout_settings(shape: HloShape) -> dict[str, str]:
    _, colon, text = shape.layout.partition(":")
    return dict(_SETTINGS.findall(text)) if colon else {}


def _tiled(dims: list[int], tile: str) -> list[int]:
    sizes = [part.strip() for part in tile.split(",") if part.strip()]
    if not sizes:
        return dims
    dims = [1] * (len(sizes) - len(dims)) + dims
    outer, inner = dims[: len(dims) - len(sizes)], dims[len(dims) - len(sizes) :]
    rest = 1
    merged: list[tuple[int, int]] = []
    for dim, size in zip(inner, sizes, strict=True):
        if size == "*":  # merge this dimension with the next one
            rest *= dim
        else:
            merged.append((rest * dim, min(int(size[:18]), 2**62) or 1))
            rest = 1
    return [*outer, *([rest] if rest > 1 else []), *(-(-dim // size) for dim, size in merged), *(s for _, s in merged)]


def _bits(dtype: str) -> int:
    if dtype in _BITS:
        return _BITS[dtype]
    found = _NUMBERED.fullmatch(dtype)
    return 0 if found is None else int(found[1])


def _number(text: str | None, default: int) -> int:
    digits = (text or "").strip("() ")
    return int(digits) if digits.isdigit() and len(digits) < 19 else default
