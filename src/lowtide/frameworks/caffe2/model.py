"""The model of a NetDef."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lowtide.core.errors import UnsupportedError
from lowtide.core.files import write_bytes
from lowtide.engine.costs import Prices
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.measured import Measurement
from lowtide.frameworks.caffe2.apply import apply_plan, in_single_assignment
from lowtide.frameworks.caffe2.known import Known, init_file, known_beside, known_of, parameters_of
from lowtide.frameworks.caffe2.nets.load import NetSource, in_kind_of, load_net, write_net
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.caffe2.running.run_net import made_up_inputs, run_once
from lowtide.frameworks.caffe2.translate import translate
from lowtide.frameworks.model import Model
from lowtide.frameworks.outputs import compare_outputs


class Caffe2Model(Model):
    """A NetDef and its graph."""

    def __init__(
        self,
        source: NetSource,
        dims: Mapping[str, int] | None = None,
        *,
        shapes: Known | None = None,
        init_net: NetSource | None = None,
        parameters: Iterable[str] = (),
    ) -> None:
        """Read a net from a path, binary or text, or from an object.

        `shapes` maps blobs to a shape, [type, shape], or bytes. It must cover external inputs; other shapes are
        inferred if their ops are known. `dims` gives single sizes: "data.0". Parameters are `parameters` and the
        outputs of `init_net`.

        Files beside the net are read too: NAME.value_info.json for shapes and, for a predict_net, value_info.json and
        init_net.pb. Shapes may also be in an argument `shape_info` or `qshape_info`, one tensor without contents per
        blob.

        Raises MalformedInputError for a broken net, UnsupportedError listing external inputs without shape, UsageError
        for unknown blobs, GraphError for sizes beyond 64 bits.
        """
        self._source = source
        self._net = load_net(source)
        where, known = f"net {self._net.name!r}", dict(shapes or {})
        if isinstance(source, str | Path):
            where, path = str(source), Path(source)
            known = {**known_beside(path), **known}
            init_net = init_file(path) if init_net is None else init_net
        filled = None if init_net is None else load_net(init_net)
        self._known = known_of(self._net, filled, known, dict(dims or {}))
        self._parameters = parameters_of(self._net, filled, parameters)
        self._translation = translate(self._net, self._known, self._parameters, where)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """Endings of NetDef files: binary and text."""
        return (".pb", ".pbtxt", ".prototxt")

    @property
    def graph(self) -> Graph:
        """The net as a graph."""
        return self._translation.graph

    @property
    def parameters(self) -> frozenset[str]:
        """Blobs that exist before the net runs and stay."""
        return self._parameters

    def in_single_assignment(self) -> tuple[NetDef, dict[str, int]]:
        """Return the net with one write per blob and no frees, and the bytes of its blobs."""
        net, names = in_single_assignment(self._net, self._translation)
        return net, dict(zip(names, self.graph.sizes.tolist(), strict=True))

    def blob_sizes(self) -> dict[str, int]:
        """Return bytes by blob; the largest if it is written several times."""
        sizes: dict[str, int] = {}
        for blob, size in zip(self._translation.blobs, self.graph.sizes.tolist(), strict=True):
            sizes[blob] = max(size, sizes.get(blob, 0))
        return sizes

    def offsets(self, plan: Plan) -> dict[str, int]:
        """Return the offset in bytes of every buffer in its memory space, by name."""
        return {self.graph.buffer_names[address.buffer]: address.offset for address in plan.addresses}

    def apply(self, plan: Plan) -> Any:
        """Return a copy of the net with the plan applied, of the source's type.

        In-place pairs share a name, and `Free` ops free blobs. Raises FingerprintError for a plan of another net,
        UnsupportedError for recomputation or copies, VerificationError for an invalid plan.
        """
        return in_kind_of(self._applied(plan), self._source)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the net with the plan applied, as text if the name ends in .pbtxt or .prototxt."""
        write_bytes(path, write_net(self._applied(plan), path.name))

    def measure(self, plan: Plan) -> Measurement:
        """Run the net in NumPy on generated inputs, with blobs freed after their last use, and with the plan.

        Raises UnsupportedError for ops without a NumPy kernel.
        """
        blobs, graph = self._translation.blobs, self.graph
        at_start = [blobs[buffer] for buffer in graph.exists_at_start.nonzero()[0].tolist()]
        results = dict.fromkeys(blobs[buffer] for buffer in sorted(self._translation.fixed))
        inputs = made_up_inputs(self._known.types, at_start)
        nets = self._applied(Plan.baseline(graph)), self._applied(plan)
        before, after = (run_once(net, inputs, results, self._parameters) for net in nets)
        agreement = compare_outputs(
            before.results, after.results, lambda: run_once(nets[0], inputs, results, self._parameters).results
        )
        return Measurement.of(agreement, before_bytes=before.peak_bytes, after_bytes=after.peak_bytes)

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError, since times of the NumPy interpreter differ from those of Caffe2."""
        raise UnsupportedError("ops of NetDefs cannot be timed; use --costs eager or fused")

    def _applied(self, plan: Plan) -> NetDef:
        return apply_plan(self._net, self._translation, plan)
