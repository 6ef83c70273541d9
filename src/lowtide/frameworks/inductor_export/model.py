"""An export of Inductor as lowtide sees it: read once, planned, written in another order."""

from collections.abc import Mapping
from pathlib import Path

from lowtide.core.errors import GraphError, UsageError
from lowtide.engine.plan import Plan
from lowtide.frameworks.inductor_export.export import Export, ExportSource, load_export
from lowtide.frameworks.inductor_export.read import read_export
from lowtide.frameworks.model import UnrunnableModel


class InductorExportModel(UnrunnableModel):
    """An export of Inductor: its nodes can be put into another order, but there is nothing to run."""

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Endings of files that planned programs are written to."""
        return (".json", ".json.gz")

    def __init__(self, source: ExportSource, dims: Mapping[str, int] | None = None) -> None:
        """Read an export from a path, a document as `json.load` gives it, or an `Export`.

        Raises MalformedInputError for what is none, GraphError for one that holds no program, UsageError for `dims`.
        """
        if dims:
            raise UsageError("an export has sizes already, there is no dimension to bind; leave out --dim (dims)")
        self._export = load_export(source)
        try:
            graph = read_export(self._export)
        except GraphError as error:
            raise GraphError(f"{source}: {error}" if isinstance(source, str | Path) else str(error)) from None
        super().__init__(graph, "an export of Inductor")

    def apply(self, plan: Plan) -> Export:
        """Return the export with its nodes in the plan's order.

        Raises PlanError for a plan that is wrong for this graph, UnsupportedError for one that repeats nodes.
        """
        return self._export.in_order(self.order_of(plan).tolist())

    def save(self, plan: Plan, path: Path) -> None:
        """Write the export with its nodes in the plan's order."""
        self.apply(plan).save(path)
