"""Shapes as HLO text writes them: arrays with layouts, tuples, tokens."""

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.xla.text.scan import end_of_group, split_top

TUPLE = "tuple"
"""The element type of a tuple."""
_DEEPEST_TUPLE = 64
_ARRAY = re.compile(r"(b\()?\s*([a-zA-Z]\w*)\[([^\]]*)\]")
_DIMENSION = re.compile(r"\s*(<=)?\s*(\d{1,18}|\?)\s*")


@dataclass(frozen=True)
class HloShape:
    """The shape of an array, a token or a tuple."""

    dtype: str
    """The element type by XLA's name in lower case: "f32", "pred", "token", "tuple"."""
    dims: tuple[int | None, ...] = ()
    """The dimensions, upper bounds where they are dynamic; None where a dimension has no bound."""
    layout: str = ""
    """What stands between the braces behind the dimensions: "1,0:T(8,128)S(1)"; empty where there are none."""
    elements: tuple["HloShape", ...] = ()
    """The shapes in a tuple."""

    @property
    def is_tuple(self) -> bool:
        """Whether it is a tuple, which may be empty."""
        return self.dtype == TUPLE

    @cached_property
    def parts(self) -> tuple["HloShape", ...]:
        """The shape itself and all shapes in it, each before those in it."""
        return (self, *(part for element in self.elements for part in element.parts))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the parts of each element begin among `parts`; one more entry says where the last ends."""
        places = [1]
        for element in self.elements:
            places.append(places[-1] + len(element.parts))
        return tuple(places)

    @cached_property
    def indices(self) -> tuple[tuple[int, ...], ...]:
        """Where every part stands: () for the shape itself, (0, 1) for the second element of its first one."""
        below = ((place, index) for place, element in enumerate(self.elements) for index in element.indices)
        return ((), *((place, *index) for place, index in below))


@lru_cache(maxsize=2**14)
def parse_shape(text: str) -> HloShape:
    """Return the shape that a text writes; raises MalformedInputError for what is none. O(length)."""
    shape, end = _shape(text, 0, 0)
    if text[end:].strip():
        raise MalformedInputError(f"{text!r} is no shape: there is more behind it")
    return shape


def end_of_shape(text: str, start: int) -> int:
    """Return where the shape that begins at a place ends; raises MalformedInputError where there is none."""
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


def _shape(text: str, start: int, depth: int) -> tuple[HloShape, int]:
    if depth > _DEEPEST_TUPLE:
        raise MalformedInputError(f"a shape nests tuples more than {_DEEPEST_TUPLE} deep")
    end = end_of_shape(text, start)
    if text.startswith("(", start):
        inner = [part.strip() for part in split_top(text[start + 1 : end - 1])]
        return HloShape(TUPLE, elements=tuple(_whole(part, depth + 1) for part in inner if part)), end
    found = _ARRAY.match(text, start)
    assert found is not None  # noqa: S101  # end_of_shape has matched it
    layout = text[found.end() : end].rstrip(")") if found[1] else text[found.end() : end]
    return HloShape(found[2].lower(), tuple(_dimensions(found[3])), layout.strip("{} ")), end


def _whole(text: str, depth: int) -> HloShape:
    shape, end = _shape(text, 0, depth)
    if text[end:].strip():
        raise MalformedInputError(f"{text!r} is no shape: there is more behind it")
    return shape


def _dimensions(text: str) -> list[int | None]:
    if not text.strip():
        return []
    found = [_DIMENSION.fullmatch(part) for part in text.split(",")]
    if not all(found):
        raise MalformedInputError(f"[{text}] holds a dimension that is no number below 10^18")
    return [None if part is None or part[2] == "?" else int(part[2]) for part in found]
