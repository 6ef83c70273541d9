"""A NetDef as lowtide sees it: read once, planned, written back, measured."""

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
from lowtide.frameworks.caffe2.known import Known, init_file, known_file, known_of, parameters_of, read_known
from lowtide.frameworks.caffe2.nets.load import NetSource, in_kind_of, load_net, write_net
from lowtide.frameworks.caffe2.nets.netdef import NetDef
from lowtide.frameworks.caffe2.running.run_net import equal_results, made_up_inputs, run_once
from lowtide.frameworks.caffe2.translate import read_net_graph
from lowtide.frameworks.model import Model


class Caffe2Model(Model):
    """A NetDef and its graph, read once."""

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

        A NetDef has no shapes. `shapes` says what is known of blobs: a shape, [type, shape], or bytes, at least for
        each blob from outside; the shapes of the others are inferred where their ops are known. `dims` gives single
        sizes: "data.0". Blobs that the `init_net` makes, and those in `parameters`, are parameters. Beside a file,
        NAME.value_info.json gives shapes; beside a predict_net also value_info.json, and init_net.pb the parameters.
        A net may carry shapes itself, in an argument `shape_info` or `qshape_info` with a tensor without contents a
        blob.
        Raises MalformedInputError for a broken net, UnsupportedError where nothing is known of a blob from outside (it
        lists them), UsageError for entries that fit no blob, GraphError for sizes no machine can hold.
        """
        self._source = source
        self._net = load_net(source)
        where = str(source) if isinstance(source, str | Path) else f"net {self._net.name!r}"
        path = Path(source) if isinstance(source, str | Path) else None
        filled = load_net(init_net) if init_net is not None else _beside(path)
        found = known_file(path) if path is not None else None
        known = {**(read_known(found) if found is not None else {}), **(shapes or {})}
        self._known = known_of(self._net, filled, known, dict(dims or {}))
        self._parameters = parameters_of(self._net, filled, parameters)
        self._translation = read_net_graph(self._net, self._known, self._parameters, where)

    @property
    def file_endings(self) -> tuple[str, ...]:
        """How names of NetDef files end: binary, and text."""
        return (".pb", ".pbtxt", ".prototxt")

    @property
    def graph(self) -> Graph:
        """The net as a graph."""
        return self._translation.graph

    @property
    def parameters(self) -> frozenset[str]:
        """The blobs that are there before the net runs and stay: weights."""
        return self._parameters

    def in_single_assignment(self) -> tuple[NetDef, dict[str, int]]:
        """Return a copy of the net in which no blob is written anew, without frees, and the bytes of its blobs."""
        net, names = in_single_assignment(self._net, self._translation)
        return net, dict(zip(names, self.graph.sizes.tolist(), strict=True))

    def blob_sizes(self) -> dict[str, int]:
        """Return the bytes of every blob, the most where it is written anew."""
        sizes: dict[str, int] = {}
        for blob, size in zip(self._translation.blobs, self.graph.sizes.tolist(), strict=True):
            sizes[blob] = max(size, sizes.get(blob, 0))
        return sizes

    def offsets(self, plan: Plan) -> dict[str, int]:
        """Return where every buffer of a plan lies, by its name in the graph, in bytes from the begin of its memory."""
        return {self.graph.buffer_names[address.buffer]: address.offset for address in plan.addresses}

    def apply(self, plan: Plan) -> Any:
        """Return a net that does what the plan says, of the kind that was read; the original stays.

        Ops stand in the plan's order, blobs that take over storage have its name, and `Free` ends each blob where the
        plan does. Raises FingerprintError for a plan of another net, UnsupportedError for one that runs ops twice or
        copies, VerificationError for one that breaks the program.
        """
        return in_kind_of(self._applied(plan), self._source)

    def save(self, plan: Plan, path: Path) -> None:
        """Write the net that follows the plan, as text where the name ends in .pbtxt or .prototxt."""
        write_bytes(path, write_net(self._applied(plan), path.name))

    def measure(self, plan: Plan) -> Measurement:
        """Run the net with every blob freed after its last use, and under the plan, in NumPy on made-up inputs.

        Raises UnsupportedError for ops without a kernel here.
        """
        blobs, graph = self._translation.blobs, self.graph
        at_start = [blobs[buffer] for buffer in graph.exists_at_start.nonzero()[0].tolist()]
        results = dict.fromkeys(blobs[buffer] for buffer in sorted(self._translation.fixed))
        inputs = made_up_inputs(self._known.types, at_start)
        nets = self._applied(Plan.baseline(graph)), self._applied(plan)
        before, after = (run_once(net, inputs, results, self._parameters) for net in nets)
        return Measurement(
            before_bytes=before.peak_bytes,
            after_bytes=after.peak_bytes,
            outputs_equal=equal_results(before.results, after.results),
        )

    def measure_costs(self) -> Prices:
        """Raise UnsupportedError: the interpreter here says nothing about Caffe2's kernels."""
        raise UnsupportedError("ops of NetDefs cannot be timed one by one; price them by --costs eager or fused")

    def _applied(self, plan: Plan) -> NetDef:
        return apply_plan(self._net, self._translation, plan)


def _beside(path: Path | None) -> NetDef | None:
    found = None if path is None else init_file(path)
    return None if found is None else load_net(found)
