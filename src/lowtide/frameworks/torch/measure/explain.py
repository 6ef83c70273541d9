"""Who holds memory at the peak of planned programs, in the user's own lines."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from torch.fx import GraphModule, Node

from lowtide.analysis.footprint import simulate
from lowtide.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.analysis.repeated_layers import Layers, by_layers
from lowtide.errors import UsageError
from lowtide.frameworks.torch.compile.programs import planned_programs
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.stack_trace import innermost_frame
from lowtide.graph import Graph
from lowtide.plan import Plan
from lowtide.planning.result import Result
from lowtide.units import format_bytes

_MOST_SHOWN = 12


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A line of the user's program."""

    file: str
    line: int
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}  {self.code}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedHolder:
    """A buffer at the peak and the line that made it."""

    holder: Holder
    """The buffer: its size, first and last use, and who keeps it alive."""
    op_kind: str | None
    """What the op that made it is, such as "aten.addmm"; None for inputs and scratch."""
    in_backward: bool
    """Whether the backward pass makes it."""
    source: SourceLine | None
    """The innermost line outside PyTorch that led to the op; of a backward op the forward line it differentiates."""

    @property
    def made_at(self) -> str | None:
        """Its module and line, "blocks.3.mlp.act at model.py:41"."""
        return self.holder.made_at

    @property
    def space(self) -> str:
        """The memory space that it is in."""
        return self.holder.space

    @property
    def size_bytes(self) -> int:
        """Its bytes."""
        return self.holder.size_bytes

    @property
    def kind(self) -> str | None:
        """The kind of the op that made it, backward ones marked."""
        return None if self.op_kind is None else f"{self.op_kind}{', backward' * self.in_backward}"

    def __str__(self) -> str:
        holder = self.holder
        lines = [f"{format_bytes(holder.size_bytes):>10}  {holder.name}  ({self.kind or holder.lifetime})"]
        lines += _where(holder.made_at, self.source)
        first, last = holder.first_use or "start", holder.last_use or "end"
        kept = f", kept by {', '.join(holder.kept_alive_by)}" if holder.kept_alive_by else ""
        lines.append(f"from {first} to {last}{kept}")
        return f"\n{'':12}".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPeak:
    """One memory space at its peak."""

    space: str
    peak_bytes: int
    op: str | None
    """The op that runs at the peak; None before the first."""
    holders: tuple[ExplainedHolder, ...]
    """What is held then, largest first; sizes add up to the peak."""

    def __str__(self) -> str:
        rows = by_layers(self.holders)
        shown, rest = rows[:_MOST_SHOWN], rows[_MOST_SHOWN:]
        when = "before the first op" if self.op is None else f"at {self.op}"
        lines = [f"{format_bytes(self.peak_bytes)} on {self.space}, {when}; held then:", *map(_row, shown)]
        if rest:
            total = sum(each.size_bytes for each in rest)
            lines.append(f"{format_bytes(total):>10}  in {sum(len(each.members) for each in rest)} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedProgram:
    """A planned program at its peak, and as it was before planning."""

    name: str
    result: Result
    planned: tuple[ExplainedPeak, ...]
    """One per memory space."""
    untouched: tuple[ExplainedPeak, ...]
    persistent_bytes: Mapping[str, int]
    """Parameters and other tensors that outlive the program, per memory space, apart from the peaks."""

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.result.status}"]
        for before, after in zip(self.untouched, self.planned, strict=True):
            lines += ["", f"Peak of the program as it was: {before}"]
            lines += ["", "Under its plan: the same" if after == before else f"Peak under its plan: {after}"]
        lines.append("")
        for claim in self.result.claims:
            if claim.figure == "peak":
                lines.append(f"At least {format_bytes(int(claim.at_least))} on {claim.space}: {claim.sentence}")
        held = ", ".join(f"{format_bytes(size)} on {space}" for space, size in self.persistent_bytes.items())
        lines += [f"Besides, throughout: {held} of parameters and other tensors that outlive the program"]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `explain` says; print it."""

    programs: tuple[ExplainedProgram, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.programs))


@runtime_checkable
class Explainable(Protocol):
    """A step that was captured, read and planned: what `training_step` returns."""

    @property
    def result(self) -> Result:
        """What planning found."""
        ...

    @property
    def captured(self) -> Captured:
        """The program that the plan is for."""
        ...

    @property
    def graph(self) -> Graph:
        """What the plan is for: `captured`, and a host where there is one."""
        ...

    @property
    def untouched(self) -> Captured:
        """The program as it was captured."""
        ...

    @property
    def untouched_graph(self) -> Graph:
        """The same as a graph, and a host where there is one."""
        ...


def explain(step: Any = None) -> Explanation:
    """Name what is alive at the peaks of the programs that the backend "lowtide" planned last, or of a planned step.

    `step` is what `training_step` returned; without one, these are the last 32 programs of this process, oldest first.
    Each peak is shown under the plan and for the program as it was. Raises UsageError where nothing was planned.
    """
    if isinstance(step, Explainable):
        return Explanation((_explained_step(step),))
    if step is not None:
        raise UsageError(f"cannot explain a {type(step).__name__}; give a step that lowtide planned, or nothing")
    programs = planned_programs()
    if not programs:
        raise UsageError('nothing was planned yet; call a function compiled with backend="lowtide" first')
    return Explanation(tuple(_explained(each.name, each.source, each.graph, each.result) for each in programs))


def _explained(name: str, module: GraphModule, graph: Graph, result: Result) -> ExplainedProgram:
    nodes = _by_name(module)
    return ExplainedProgram(
        name=name,
        result=result,
        planned=_peaks(graph, result.plan, nodes),
        untouched=_peaks(graph, Plan.baseline(graph), nodes),
        persistent_bytes=graph.persistent_bytes(),
    )


def _explained_step(step: Explainable) -> ExplainedProgram:
    """Explain a plan whose graph may be in chunks."""
    before = step.untouched_graph
    return replace(
        _explained(step.captured.name, step.captured.graph_module, step.graph, step.result),
        untouched=_peaks(before, Plan.baseline(before), _by_name(step.untouched.graph_module)),
    )


def _by_name(module: GraphModule) -> dict[str, Node]:
    return {node.name: node for node in module.graph.nodes}


def _peaks(graph: Graph, plan: Plan, nodes: Mapping[str, Node]) -> tuple[ExplainedPeak, ...]:
    footprint = simulate(graph, plan)
    kinds = dict(zip(graph.op_names, graph.op_kinds, strict=True))
    holders = [_explained_holder(holder, nodes, kinds) for holder in holders_at_peak(graph, plan)]
    steps = footprint.peak_steps
    return tuple(
        ExplainedPeak(
            space=space,
            peak_bytes=peak,
            op=None if steps[space] < 0 else graph.op_names[int(plan.targets[steps[space]])],
            holders=tuple(each for each in holders if each.holder.space == space),
        )
        for space, peak in footprint.peak_bytes.items()
    )


def _explained_holder(holder: Holder, nodes: Mapping[str, Node], kinds: Mapping[str, str]) -> ExplainedHolder:
    op = holder.op if holder.lifetime != "scratch" else holder.first_use
    node = nodes.get(op or holder.name)
    return ExplainedHolder(
        holder=holder,
        op_kind=None if holder.op is None else kinds[holder.op],
        in_backward=node is not None and node.meta.get("partitioner_tag") == "is_backward",
        source=None if node is None else source_line(node),
    )


def _row(layers: Layers[ExplainedHolder]) -> str:
    """Return one holder as it is, or what repeated layers hold together."""
    first = layers.members[0]
    if not layers.is_repeated:
        return str(first)
    lines = [
        f"{format_bytes(layers.size_bytes):>10}  {layers.title}  ({first.kind})",
        *_where(layers.made_at, first.source),
    ]
    return f"\n{'':12}".join(lines)


def _where(made_at: str | None, line: SourceLine | None) -> list[str]:
    """Return the module that makes a buffer, and the line."""
    module = (made_at or "").rpartition("at ")[0].strip()
    return [*([module] if module else []), *([str(line)] if line is not None else [])]


def source_line(node: Node) -> SourceLine | None:
    """Return the innermost line outside PyTorch's own files in a node's stack trace; None where it has none."""
    frame = innermost_frame(node)
    return None if frame is None else SourceLine(frame.file, frame.line, frame.code)
