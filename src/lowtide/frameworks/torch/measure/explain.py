"""Explain which tensors are alive at the peak, by lines of user code."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable
from weakref import ref

from torch.fx import GraphModule, Node

from lowtide.core.errors import UsageError
from lowtide.core.units import format_bytes
from lowtide.engine.analysis.folding import Fold, fold
from lowtide.engine.analysis.footprint import simulate
from lowtide.engine.analysis.holders_at_peak import Holder, holders_at_peak
from lowtide.engine.graph import Graph
from lowtide.engine.plan import Plan
from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.internals.compiling import compiled_with
from lowtide.frameworks.torch.planning.planned_program import PlannedModule
from lowtide.frameworks.torch.planning.programs import planned_programs
from lowtide.frameworks.torch.planning.shared_budget import programs_of
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.stack_trace import innermost_frame
from lowtide.reporting.shortfall import outcome

_MOST_SHOWN = 12
_MOST_STEPS = 8


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
    """A buffer at the peak, with the line that created it."""

    holder: Holder
    op_kind: str | None
    """None for inputs and scratch."""
    in_backward: bool
    source: SourceLine | None
    """The innermost outside PyTorch; the forward line for backward ops."""

    @property
    def made_at(self) -> str | None:
        """Module and line, "blocks.3.mlp.act at model.py:41"."""
        return self.holder.made_at

    @property
    def name(self) -> str:
        """Buffer name."""
        return self.holder.name

    @property
    def lifetime(self) -> str:
        """Lifetime class."""
        return self.holder.lifetime

    @property
    def space(self) -> str:
        """Memory space."""
        return self.holder.space

    @property
    def size_bytes(self) -> int:
        """Size."""
        return self.holder.size_bytes

    @property
    def kind(self) -> str | None:
        """The op kind, marked for backward ops."""
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
    """The running op; None before the first."""
    holders: tuple[ExplainedHolder, ...]
    """Largest first; sizes add up to the peak."""

    def __str__(self) -> str:
        rows = fold(self.holders)
        shown, rest = rows[:_MOST_SHOWN], rows[_MOST_SHOWN:]
        when = "before the first op" if self.op is None else f"at {self.op}"
        lines = [
            f"{format_bytes(self.peak_bytes)} on {self.space}, {when}; alive then:",
            *(_row(layers) for layers in shown),
        ]
        if rest:
            total = sum(each.size_bytes for each in rest)
            lines.append(f"{format_bytes(total):>10}  in {sum(len(each.holders) for each in rest)} more")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedProgram:
    """A program at its peak, with and without its plan."""

    name: str
    result: Result
    planned: tuple[ExplainedPeak, ...]
    unmodified: tuple[ExplainedPeak, ...]
    persistent_bytes: Mapping[str, int]
    """Of parameters and the like, outside of the peaks."""
    ops_because: str | None = None
    """Why peaks are those of ops before fusion."""

    def __str__(self) -> str:
        lines = [f"{self.name}: {outcome(self.result)}"]
        if self.ops_because is not None:
            lines.append(f"Kernels are not planned, because {self.ops_because}.")
            lines.append("The peaks below are those of the ops before Inductor fuses them.")
        for before, after in zip(self.unmodified, self.planned, strict=True):
            own = "the same" if after == before else str(after)
            lines += ["", f"Peak of the unmodified program: {before}", "", f"Peak with its plan: {own}"]
        lines.append("")
        for claim in self.result.claims:
            if claim.figure == "peak":
                lines.append(f"At least {format_bytes(int(claim.at_least))} on {claim.space}: {claim.sentence}")
        held = ", ".join(f"{format_bytes(size)} on {space}" for space, size in self.persistent_bytes.items())
        return "\n".join([*lines, f"In addition: {held} of parameters and other persistent tensors"])


@dataclass(frozen=True, slots=True)
class Explanation:
    """The result of `explain`. Print it."""

    programs: tuple[ExplainedProgram, ...]

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.programs))


@runtime_checkable
class Explainable(Protocol):
    @property
    def result(self) -> Result: ...

    @property
    def captured(self) -> Captured: ...

    @property
    def graph(self) -> Graph: ...

    @property
    def unmodified(self) -> Captured: ...

    @property
    def unmodified_graph(self) -> Graph: ...

    @property
    def compiled(self) -> PlannedModule | None: ...


_steps: deque["ref[Explainable]"] = deque(maxlen=_MOST_STEPS)


def remember_step(step: Explainable) -> None:
    _steps.append(ref(step))


def explain(planned: Any = None) -> Explanation:
    """Return the tensors alive at the peaks, with and without plan, of the latest programs or of `planned`.

    The argument is a planned step, or a function or module compiled with the backend "lowtide"; those with equal
    options share their programs. By default, the backend's programs come first, oldest first, then training steps.
    Raises UsageError if nothing was planned.
    """
    if isinstance(planned, Explainable):
        return Explanation((_explained_step(planned),))
    if planned is not None:
        return Explanation(tuple(map(_explained_compiled, _programs_of(planned))))
    programs = [_explained_compiled(each) for each in planned_programs()]
    steps = [_explained_step(each) for each in (found() for found in _steps) if each is not None]
    if not programs and not steps:
        raise UsageError("nothing was planned yet; call a compiled function or make a training_step first")
    return Explanation((*programs, *steps))


def _programs_of(compiled: object) -> list[PlannedModule]:
    found, kind = compiled_with(compiled), type(compiled).__name__
    if found is None:
        raise UsageError(
            f"cannot explain an object of type {kind}; give a planned step, a function or module compiled with "
            "backend 'lowtide', or no argument"
        )
    backend, options = found
    if backend != "lowtide":
        raise UsageError(f"cannot explain a {kind} that backend '{backend}' compiled; compile it with 'lowtide'")
    programs = programs_of(options)
    if not programs:
        raise UsageError(f"the {kind} has no planned programs yet; call it first")
    return programs


def _explained_compiled(each: PlannedModule) -> ExplainedProgram:
    graph, result = each.kernels[-1] if each.kernels else (each.graph, each.result)
    because = None if each.kernels else each.ops_because
    return replace(_explained(each.name, each.source, graph, result), ops_because=because)


def _explained(name: str, module: GraphModule, graph: Graph, result: Result) -> ExplainedProgram:
    nodes = _by_name(module)
    return ExplainedProgram(
        name=name,
        result=result,
        planned=_peaks(graph, result.plan, nodes),
        unmodified=_peaks(graph, Plan.baseline(graph), nodes),
        persistent_bytes=graph.persistent_bytes(),
    )


def _explained_step(step: Explainable) -> ExplainedProgram:
    if step.compiled is not None:
        return _explained_compiled(step.compiled)
    before = step.unmodified_graph
    return replace(
        _explained(step.captured.name, step.captured.graph_module, step.graph, step.result),
        unmodified=_peaks(before, Plan.baseline(before), _by_name(step.unmodified.graph_module)),
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
    frame = None if node is None else innermost_frame(node)
    return ExplainedHolder(
        holder=holder,
        op_kind=None if holder.op is None else kinds[holder.op],
        in_backward=node is not None and node.meta.get("partitioner_tag") == "is_backward",
        source=None if frame is None else SourceLine(frame.file, frame.line, frame.code),
    )


def _row(layers: Fold[ExplainedHolder]) -> str:
    first = layers.first
    if len(layers.holders) == 1:
        return str(first)
    where = _where(layers.made_at, first.source)
    lines = [f"{format_bytes(layers.size_bytes):>10}  {layers.label}  ({first.kind or first.lifetime})", *where]
    return f"\n{'':12}".join(lines)


def _where(made_at: str | None, line: SourceLine | None) -> list[str]:
    module = (made_at or "").rpartition("at ")[0].strip()
    return [str(part) for part in (module, line) if part]
