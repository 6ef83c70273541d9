"""HLO modules to plan and reorder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.core.errors import GraphError, UsageError
from lowtide.core.files import write_bytes
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Reserved
from lowtide.frameworks.model import UnrunnableModel
from lowtide.frameworks.xla.against_assignment import against_assignment
from lowtide.frameworks.xla.load import load_module
from lowtide.frameworks.xla.reading.module import ReadModule, read_module
from lowtide.frameworks.xla.schedule import scheduled
from lowtide.frameworks.xla.text.module import HloModule


class XlaModel(UnrunnableModel):
    """An HLO module and its graph."""

    KIND = "an HLO module"

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Endings of HLO text files."""
        return (".hlo", ".txt")

    def __init__(self, source: Any, dims: Mapping[str, int] | None = None) -> None:
        """Read a source of `load_module`; raises also GraphError for an invalid program, UsageError for `dims`."""
        if dims:
            raise UsageError("an HLO module has no dimensions to bind; leave out --dim (dims)")
        loaded = load_module(source)
        self._allocations = loaded.allocations
        try:
            self._read = read_module(loaded.module, loaded.where)
        except GraphError as error:
            raise GraphError(f"{loaded.where}: {error}") from None
        super().__init__(self._read.graph)

    @property
    def module(self) -> HloModule:
        """The unmodified module."""
        return self._read.module

    @property
    def read(self) -> ReadModule:
        """The module with its computations' graphs."""
        return self._read

    def reserved(self) -> Reserved | None:
        """Return XLA's reserved bytes and the modeled peak; None without a buffer assignment."""
        return against_assignment(self._read, self._allocations) if self._allocations else None

    def apply(self, plan: Plan) -> HloModule:
        """Return the module in the plan's order, marked as scheduled; see `scheduled`."""
        return scheduled(self._read, plan)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the module in the plan's order as HLO text."""
        write_bytes(path, self.apply(plan).text.encode())
