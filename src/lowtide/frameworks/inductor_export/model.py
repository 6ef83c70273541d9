"""The model of an Inductor export."""

from collections.abc import Mapping
from pathlib import Path

from lowtide.core.errors import GraphError, UsageError
from lowtide.engine.plan import Plan
from lowtide.frameworks.inductor_export.export import Export, ExportSource, load_export
from lowtide.frameworks.inductor_export.read import read_export
from lowtide.frameworks.model import UnrunnableModel


class InductorExportModel(UnrunnableModel):
    """An Inductor export. Its nodes can be reordered but not run."""

    KIND = "an export of Inductor"

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Endings of files for planned exports."""
        return (".json", ".json.gz")

    def __init__(self, source: ExportSource, dims: Mapping[str, int] | None = None) -> None:
        """Read an export from a path, a document parsed by `json.load`, or an `Export`.

        Raises MalformedInputError for a malformed export, GraphError for an invalid program, UsageError for `dims`.
        """
        if dims:
            raise UsageError("an export has no dynamic dimensions; leave out --dim (dims)")
        self._export = load_export(source)
        try:
            graph = read_export(self._export)
        except GraphError as error:
            raise GraphError(f"{source}: {error}" if isinstance(source, str | Path) else str(error)) from None
        super().__init__(graph)

    def apply(self, plan: Plan) -> Export:
        """Return the export with its nodes in the plan's order.

        Raises PlanError for an invalid plan, UnsupportedError for recomputation.
        """
        return self._export.in_order(self.order_of(plan).tolist())

    def save(self, plan: Plan, path: Path) -> None:
        """Write the export with its nodes in the plan's order."""
        self.apply(plan).save(path)
