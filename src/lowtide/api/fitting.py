"""`fits`: whether a program fits a device, and for training steps at which batch size or sequence length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from lowtide.api.opening import open_model
from lowtide.api.step_sizes import Captures, SizeSearch, sizes_of
from lowtide.api.targets import Target, target_of
from lowtide.api.training_sources import recipe_of
from lowtide.core.errors import UsageError, unknown
from lowtide.core.progress import Report
from lowtide.core.techniques import ROUNDING
from lowtide.engine.offload import host_of_device
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.table import require
from lowtide.frameworks.training_steps import OptimizerName, PrecisionName, Read, Recipe, Step
from lowtide.reporting.fitting import DeviceFit, fit_device
from lowtide.reporting.fitting_sizes import LEVELS, Axis, FitTable, Level, SizeFit


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeOptions:
    """What is fixed and what varies in the table of a training step; raises UsageError for unknown names."""

    batch: int | None = None
    sequence: int | None = None
    largest: Axis | None = None
    """The size that varies and whose largest value is searched; None varies the batch without a search."""
    optimizer: OptimizerName | None = None
    precision: PrecisionName | None = None

    def __post_init__(self) -> None:
        """Check names and sizes."""
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
) -> DeviceFit | FitTable:
    """Return whether a program fits a device: a table of sizes for a PyTorch training step, one fit for others.

    Raises UsageError for an unknown device or options that the program does not have, and the errors of reading it.
    """
    target = target_of(device)
    recipe = recipe_of(source)
    if recipe is not None:
        require("torch")
        recipe = replace(recipe, optimizer=sizes.optimizer or "adamw", precision=sizes.precision or "float32")
        table = _table(recipe, target, sizes, settings, report)
        if table is not None:
            return table
    if sizes != SizeOptions():
        raise UsageError("only PyTorch training steps have a batch, a sequence, an optimizer and a precision to choose")
    model = open_model(source, dims, settings.host, trust=trust)
    return fit_device(model, target.memory_bytes, settings, report, model.planned, source=source)


def _table(
    recipe: Recipe, target: Target, sizes: SizeOptions, settings: PlanSettings, report: Report
) -> FitTable | None:
    """Return the table of a training step, or None for a program of another framework."""
    from lowtide.frameworks.torch.absent_device.process import DeviceProcess

    process = DeviceProcess()
    axis: Axis = sizes.largest or "batch"

    def read(batch: int | None, sequence: int | None) -> Step | None:
        return process.ask(Read(device=target.device, recipe=recipe, batch=batch, sequence=sequence))

    report("capturing the training step")
    first = read(sizes.batch, sizes.sequence)
    if first is None:
        return None
    if axis == "sequence" and first.sequence is None:
        raise UsageError(f"{first.graph.name} has no sequences; leave out --largest sequence")
    own = first.batch if axis == "batch" else first.sequence
    values, unit = sizes_of(axis, own or 1, first.longest)
    if own is None or (axis == "batch" and sizes.batch is not None):
        values = [own or 0]  # 0: as given

    def capture(size: int) -> Step:
        made = read(size, sizes.sequence) if axis == "batch" else read(sizes.batch, size)
        assert made is not None  # noqa: S101
        return made

    captures = Captures(capture, (own or 0, first))
    search = SizeSearch(captures, target, _priced(settings, target), report)
    rows = search.rows(axis, values)
    largest = search.largest(rows, unit) if sizes.largest else {}
    return FitTable(
        name=first.graph.name,
        device=target.title,
        device_bytes=target.memory_bytes,
        axis=axis,
        settings=_settings_in_words(first, axis),
        costs=target.costs,
        rows=rows,
        largest=largest,
        code=_code(captures, rows, largest),
    )


def _priced(settings: PlanSettings, target: Target) -> PlanSettings:
    """Return settings with the prices of the device and its link to the host, unless others are given.

    A table takes many plans, so each gets the least effort.
    """
    host = settings.host or (None if target.device is None else host_of_device(target.device))
    costs = target.costs if settings.costs == "given" else settings.costs
    return replace(settings, host=host, costs=costs, addresses=False, effort="fast")


def _settings_in_words(step: Step, axis: Axis) -> str:
    fixed = "" if step.sequence is None else f"{step.sequence:,} tokens per row"
    if axis == "sequence":
        fixed = f"batches of {step.batch}"
    return ", ".join(filter(None, (step.settings, fixed)))


def _code(captures: Captures, rows: Sequence[SizeFit], largest: Mapping[Level, int]) -> list[str]:
    """Return the code of the largest size that fits, without offload if possible; empty if none fits."""
    sizes: dict[Level, int] = {row.level: row.size for row in rows if row.level is not None}
    sizes.update(largest)
    if not sizes:
        return []
    level = max(sizes, key=lambda each: (each != "offload", LEVELS.index(each)))
    rounds = any(ROUNDING in (row.fit.techniques or ()) for row in rows)
    return _next_code(captures.step(sizes[level]), level, rounds=rounds)


def _next_code(step: Step, level: Level, *, rounds: bool) -> list[str]:
    """Return lines of Python that run a step in the memory that is free on the device."""
    allow = '"reorder", "share", "recompute", "offload"' + (', "rounding"' if rounds else "")
    if not step.parts:
        more = f', "allow": ({allow})' if level == "offload" else ""
        options = f'{{"budget": "fit"{more}}}'
        return [*step.code, f'step = torch.compile(made, backend="lowtide", options={options})']
    more = f", allow=({allow})" if level == "offload" else ""
    return [
        *step.code,
        f'step = lowtide.torch.training_step({step.parts}, batch, budget="fit"{more})',
        f"loss = step({step.call})",
    ]
