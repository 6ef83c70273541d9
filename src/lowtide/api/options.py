"""The options of all verbs, checked before reading a program."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypedDict

from lowtide.api.opening import open_model
from lowtide.api.training_sources import with_inputs
from lowtide.core.effort import EffortName
from lowtide.core.errors import UsageError, named_type
from lowtide.core.progress import Report
from lowtide.core.techniques import checked_techniques
from lowtide.engine.costs import Prices
from lowtide.engine.offload import Host
from lowtide.engine.planning.budget import GivenBudget, given_budget
from lowtide.engine.planning.settings import PlanSettings, default_techniques
from lowtide.frameworks.model import Model


class SourceOptions(TypedDict, total=False):
    """How any program is read."""

    host: Host | None
    dims: Mapping[str, int] | None
    trust: bool


class ReadOptions(SourceOptions, total=False):
    """How a program is read; see `open_model`."""

    device: str | None


class FitOptions(SourceOptions, total=False):
    """How a program is planned for a device; `PlanSettings` describes options and defaults."""

    allow: Iterable[str] | None
    """The default depends on the verb."""
    in_place: bool
    costs: str | Prices
    effort: EffortName
    progress: bool | Report


class PlanOptions(FitOptions, ReadOptions, total=False):
    """How a program is read and planned."""

    budget: GivenBudget
    transient: bool
    addresses: bool
    scheduler: str | None
    prove: bool


_TYPES: Mapping[str, tuple[type, ...]] = {
    "host": (Host, type(None)),
    "dims": (Mapping, type(None)),
    "device": (str, type(None)),
    "costs": (str, Prices),
}


def check_options(verb: str, options: Mapping[str, Any], kind: type) -> None:
    """Raise UsageError for an unknown option of a verb, or another type."""
    known = list(kind.__annotations__)
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known)}"
            raise UsageError(f"lowtide.{verb} has no option {name!r}{meant}")
        wanted = _TYPES.get(name)
        if wanted is not None and not isinstance(value, wanted):
            raise UsageError(f"{name} is {named_type(value)}; give a {wanted[0].__name__}, or leave it out")


def opened(
    program: Any, inputs: tuple[Any, ...], options: ReadOptions | PlanOptions, output: Path | None = None
) -> Model:
    source = with_inputs(program, inputs)
    dims, host, trust = options.get("dims"), options.get("host"), options.get("trust", False)
    return open_model(source, dims, host, trust=trust, output=output, device=options.get("device"))


def settings_of(options: PlanOptions | FitOptions) -> PlanSettings:
    """Return planning settings. Raises UsageError for a budget without a unit and unknown names."""
    names = ("budget", "transient", "in_place", "addresses", "scheduler", "costs", "effort", "prove", "host")
    given: dict[str, Any] = {name: value for name, value in options.items() if name in names}
    allow, budget = options.get("allow"), given_budget(options.get("budget"))
    return PlanSettings(techniques=default_techniques(budget) if allow is None else checked_techniques(allow), **given)
