"""`fits`: whether a program fits a device, and at which batch size or sequence length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from lowtide.api.opening import open_model
from lowtide.api.step_captures import Captures
from lowtide.api.step_sizes import SizeSearch, sizes_of
from lowtide.api.targets import Target, target_of
from lowtide.api.training_sources import recipe_of
from lowtide.core.errors import UsageError, unknown
from lowtide.core.progress import Report
from lowtide.core.techniques import ROUNDING, Techniques, listed_in_code
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host, host_of_device
from lowtide.engine.planning.program import FormName
from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.table import require
from lowtide.frameworks.training_steps import (
    OptimizerName,
    PrecisionName,
    Read,
    ReadInChunks,
    Recipe,
    Step,
    require_transformers,
)
from lowtide.reporting.fitting import DeviceFit, code_of_host, fit_device, ladder_for
from lowtide.reporting.fitting_sizes import LEVELS, Axis, FitTable, Level, SizeFit

_WIDTH = 80
_INDENT = 4 * " "
_KINDS_OF_BATCH = {"*batch": "a tuple of inputs", "**batch": "a dict of inputs by name", "batch": "a tensor"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """Sizes and settings of a training step's table; raises UsageError for unknown names."""

    batch: int | None = None
    sequence: int | None = None
    largest: Axis | None = None
    """The varied size, whose largest value is searched; None varies the batch without a search."""
    optimizer: OptimizerName | None = None
    precision: PrecisionName | None = None

    def __post_init__(self) -> None:
        named = (("optimizer", OptimizerName), ("precision", PrecisionName), ("largest", Axis))
        for name, kind in named:
            if getattr(self, name) is not None and getattr(self, name) not in get_args(kind):
                raise UsageError(unknown(name, getattr(self, name), get_args(kind)))
        for name, size in (("batch", self.batch), ("sequence", self.sequence)):
            if size is not None and (type(size) is not int or size < 1):
                raise UsageError(f"{name} is {size!r}; give a whole number of at least 1")
        if self.largest is not None and getattr(self, self.largest) is not None:
            raise UsageError(f"the largest {self.largest} is searched; leave out {self.largest}")


def fit_program(
    source: Any,
    device: str | int,
    sizes: SizeOptions,
    settings: PlanSettings,
    dims: Mapping[str, int],
    *,
    trust: bool,
    report: Report,
    allow: Techniques | None = None,
) -> DeviceFit | FitTable:
    """Return a table of sizes for a PyTorch training step, one fit for another program.

    `allow` restricts the techniques, see `ladder_for`. Raises UsageError for an unknown device or options that the
    program does not have, and the errors of `open_model`.
    """
    target = target_of(device)
    recipe = recipe_of(source)
    if recipe is not None:
        require("torch")
        if recipe.kind == "config":
            require_transformers(recipe.name)
        recipe = replace(recipe, optimizer=sizes.optimizer or "adamw", precision=sizes.precision or "float32")
        table = _table(recipe, target, sizes, settings, report, allow)
        if table is not None:
            return table
    if sizes != SizeOptions():
        raise UsageError("only PyTorch training steps have a batch, a sequence, an optimizer and a precision to choose")
    model = open_model(source, dims, settings.host, trust=trust)
    ladder = ladder_for(model, settings, allow)
    return fit_device(model, target.usable_bytes, settings, report, model.planned, source, ladder)


def _table(
    recipe: Recipe,
    target: Target,
    sizes: SizeOptions,
    settings: PlanSettings,
    report: Report,
    allow: Techniques | None,
) -> FitTable | None:
    from lowtide.frameworks.torch.absent_device.process import DeviceProcess

    process = DeviceProcess()
    axis: Axis = sizes.largest or "batch"

    given = Read(device=target.device, recipe=recipe, batch=sizes.batch, sequence=sizes.sequence)
    report("capturing the training step")
    first: Step | None = process.ask(given)
    if first is None:
        return None
    if axis == "sequence" and first.sequence is None:
        raise UsageError(f"{first.graph.name} has no sequences; leave out --largest sequence")
    own = first.batch if axis == "batch" else first.sequence
    values, unit = sizes_of(axis, own or 1, first.longest)
    if own is None or (axis == "batch" and sizes.batch is not None):
        values = [own or 0]  # 0: as given

    def request(size: int) -> Read:
        return given if size == (own or 0) else replace(given, **{axis: size})

    def in_chunks(size: int, form: FormName) -> Graph | None:
        report(f"computing the largest products {form}")
        return process.ask(ReadInChunks(step=request(size), form=form))

    captures = Captures(lambda size: process.ask(request(size)), (own or 0, first), in_chunks)
    search = SizeSearch(captures, target, _priced(settings, target), report, allow)
    rows = search.rows(axis, values)
    largest = search.largest(rows, unit) if sizes.largest else {}
    return FitTable(
        name=first.graph.name,
        device=target.title,
        device_bytes=target.usable_bytes,
        axis=axis,
        settings=_settings_in_words(first, axis),
        costs=target.costs,
        rows=rows,
        largest=largest,
        code=_code(captures, search, rows, largest),
    )


def _priced(settings: PlanSettings, target: Target) -> PlanSettings:
    """Return settings with the prices of the device and its link to the host, unless others are given.

    A table takes many plans, so each gets the least effort, unless "max" is asked for.
    """
    host = settings.host or (None if target.device is None else host_of_device(target.device))
    costs = target.costs if settings.costs == "given" else settings.costs
    return replace(
        settings, host=host, costs=costs, addresses=False, effort="max" if settings.effort == "max" else "fast"
    )


def _settings_in_words(step: Step, axis: Axis) -> str:
    fixed = "" if step.sequence is None else f"{step.sequence:,} tokens per row"
    if axis == "sequence":
        fixed = f"batches of {step.batch}"
    return ", ".join(filter(None, (step.settings, fixed)))


def _code(captures: Captures, search: SizeSearch, rows: Sequence[SizeFit], largest: Mapping[Level, int]) -> list[str]:
    """Return the code of the largest size that fits, without offload if possible."""
    sizes: dict[Level, int] = {row.level: row.size for row in rows if row.level is not None}
    sizes.update(largest)
    if not sizes:
        return []
    level = max(sizes, key=lambda each: (each != "offload", LEVELS.index(each)))
    step, techniques = captures.step(sizes[level]), _used(search, rows, sizes[level], level)
    if "offload" in techniques and not step.parts and search.settings.host is not None:
        return _next_call(step, techniques, search.target.usable_bytes, search.settings.host)
    return _next_code(step, techniques)


def _used(search: SizeSearch, rows: Sequence[SizeFit], size: int, level: Level) -> Techniques:
    """Return a size's techniques: those of its best plan if it is a row or has state on the host."""
    row = next((row for row in rows if row.size == size and row.level == level), None)
    if row is None and level != "offload":
        return search.techniques(size, level) or frozenset()
    fit = (row or search.fit(size, level)).fit
    used = fit.techniques or frozenset[str]()
    return used if fit.result.to_rounding else used - {ROUNDING}


def _next_code(step: Step, techniques: Techniques) -> list[str]:
    named = techniques if step.parts else techniques - {ROUNDING}  # Inductor computes in chunks without it
    allow = listed_in_code(named | default_techniques("fit"))
    is_default = named <= default_techniques("fit")
    if step.parts:
        function = "lowtide.torch.training_step"
        arguments = [*step.parts, "batch", *step.options, 'budget="fit"', *([] if is_default else [f"allow=({allow})"])]
    else:
        function = "torch.compile"
        more = "" if is_default else f', "allow": ({allow})'
        arguments = ["made", 'backend="lowtide"', f'options={{"budget": "fit"{more}}}']
    if not step.given:
        lines = [*step.code, *_call(f"step = {function}", arguments, _WIDTH)]
        return [*lines, f"loss = step({step.call})"] if step.parts else lines
    lines = [*step.code, *_call(f"return {function}", arguments, _WIDTH - len(_INDENT))]
    return _in_function(step, lines, "loss" if step.parts else "result")


def _next_call(step: Step, techniques: Techniques, device_bytes: int, host: Host) -> list[str]:
    allow = listed_in_code(techniques - {ROUNDING})
    inputs = step.call.removeprefix("**")
    options = [f'budget="{device_bytes} B"', f"allow=({allow})", "host=host"]
    width = _WIDTH - len(_INDENT) * bool(step.given)
    lines = [
        *step.code,
        f"host = {code_of_host(host)}",
        *_call("result = lowtide.plan", ["made", inputs, *options], width),
    ]
    applied = f"lowtide.apply(result.plan, made, {inputs}, host=host)"
    if not step.given:
        return [*lines, f"planned = {applied}", f"result = planned({step.call})"]
    return _in_function(step, [*lines, f"return {applied}"], "result")


def _in_function(step: Step, lines: Sequence[str], result: str) -> list[str]:
    return [
        "import lowtide, torch",
        "",
        f"def planned({step.given}, batch):  # batch is {_KINDS_OF_BATCH[step.call]}",
        *(f"{_INDENT}{line}" if line else "" for line in lines),
        "",
        f"# step = planned({step.given}, batch)",
        f"# {result} = step({step.call})",
    ]


def _call(function: str, arguments: Sequence[str], width: int) -> list[str]:
    together = ", ".join(arguments)
    if len(f"{function}({together})") <= width:
        return [f"{function}({together})"]
    if len(_INDENT + together) <= width:
        return [f"{function}(", f"{_INDENT}{together}", ")"]
    return [f"{function}(", *(f"{_INDENT}{argument}," for argument in arguments), ")"]
