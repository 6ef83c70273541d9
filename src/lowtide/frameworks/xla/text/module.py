"""An HLO module as text: computations of instructions, and all that stands between them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lowtide.frameworks.xla.text.instruction import Instruction
from lowtide.frameworks.xla.text.scan import split_top

_HEADER = re.compile(r"HloModule\s+([^\s,]+)((?:[^\n]|\n(?!\s*\n))*)")
"""The module's line, with those after it up to an empty one."""


@dataclass(frozen=True)
class Computation:
    """A computation: its instructions in the order in which they are written, each before its users."""

    name: str
    is_entry: bool
    opening: str
    """All up to its instructions: what stands before it, and its first line."""
    instructions: tuple[Instruction, ...]
    closing: str
    """All behind its last instruction, the closing brace included."""

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Where each instruction stands, by name."""
        return {instruction.name: place for place, instruction in enumerate(self.instructions)}

    @cached_property
    def root(self) -> int:
        """Where the instruction stands whose value is the computation's: the one marked so, else the last."""
        return next(
            (place for place, instruction in enumerate(self.instructions) if instruction.is_root),
            len(self.instructions) - 1,
        )

    @property
    def text(self) -> str:
        """The computation as it is written."""
        return self.opening + "".join(instruction.text for instruction in self.instructions) + self.closing


@dataclass(frozen=True)
class HloModule:
    """A module of HLO text. Two modules are equal where their texts are."""

    header: str
    """All before the first computation: the line with the module's name, and tables of source places."""
    computations: tuple[Computation, ...]
    rest: str
    """All behind the last computation."""

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        """The module as HLO text; one that was read and not changed is as it was, byte for byte."""
        return self.header + "".join(computation.text for computation in self.computations) + self.rest

    @property
    def name(self) -> str:
        """The name of the module."""
        found = _HEADER.search(self.header)
        return found[1] if found else ""

    @cached_property
    def attributes(self) -> Mapping[str, str]:
        """The attributes behind the module's name, each as it is written."""
        found = _HEADER.search(self.header)
        pairs = [part.strip().partition("=") for part in split_top(found[2] if found else "")]
        return {key: value for key, sign, value in pairs if sign}

    @property
    def is_scheduled(self) -> bool:
        """Whether the module says that its computations run in the order in which they are written."""
        return self.attributes.get("is_scheduled") == "true"

    @cached_property
    def by_name(self) -> Mapping[str, Computation]:
        """The computations by name."""
        return {computation.name: computation for computation in self.computations}

    @cached_property
    def entry(self) -> Computation:
        """The computation that the module runs."""
        return next(computation for computation in self.computations if computation.is_entry)
