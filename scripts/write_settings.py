"""Write docs/settings.md from `PlanSettings` and the interfaces that take its settings; run it after a change."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import click

from lowtide.api.verbs import PlanOptions
from lowtide.cli.plan import command
from lowtide.core.techniques import TECHNIQUES
from lowtide.engine.planning.settings import SENTENCES, PlanSettings
from lowtide.engine.schedule import SCHEDULERS
from lowtide.frameworks.torch.planning.options import BACKEND_DEFAULTS, DEFAULTS, Options
from lowtide.torch import training_step


def _written(option: click.Parameter) -> str:
    return max([*option.opts, *option.secondary_opts], key=len)


PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "techniques": ("allow",),
    "host": ("host_bandwidth", "host_capacity"),
}
"""Parameter names of a setting that differ from its own name."""
FACES: Mapping[str, Mapping[str, str]] = {
    "`lowtide.plan`": {name: name for name in get_type_hints(PlanOptions)},
    "command line": {str(option.name): _written(option) for option in command.params},
    '`backend="lowtide"`': {field.name: field.name for field in fields(Options)},
    "`training_step`": {name: name for name in inspect.signature(training_step).parameters},
}
"""Every interface with its parameters, as they are written there."""
OVERRIDES: Mapping[str, tuple[PlanSettings, PlanSettings, str]] = {
    "PyTorch": (
        DEFAULTS,
        PlanSettings(),
        "recomputation needs a budget, as everywhere, and PyTorch places buffers itself",
    ),
    '`backend="lowtide"`': (BACKEND_DEFAULTS, DEFAULTS, "planning should be short compared with compiling"),
}
"""Different defaults of an interface: its settings, the settings that they are derived from, and the reason."""
HEAD = """# Settings

`PlanSettings` declares every setting of planning once. `scripts/write_settings.py` writes this page from it.
By default techniques are those that cost no time, with a budget also `recompute`. A technique that would be ignored is
refused, with the reason.
"""


def page() -> str:
    """Return the page."""
    rows = [_row(field.name) for field in fields(PlanSettings)]
    head = ["setting", *FACES, "default", "meaning"]
    table = [_line(head), _line(["---"] * len(head)), *rows]
    others = [f"- {face}: {_differences(*declared)}." for face, declared in OVERRIDES.items()]
    return "\n".join([HEAD, *table, "", "Different defaults:", "", *others, ""])


def _row(name: str) -> str:
    names = (name, *OTHER_NAMES.get(name, ()))
    taken = [", ".join(f"`{face[each]}`" for each in names if each in face) or "-" for face in FACES.values()]
    sentence = SENTENCES[name].replace(", ".join(SCHEDULERS), "any of the [schedulers](schedulers.md)")
    return _line([f"`{name}`", *taken, _shown(getattr(PlanSettings, name)), sentence])


def _differences(declared: PlanSettings, start: PlanSettings, reason: str) -> str:
    changed = [field.name for field in fields(declared) if getattr(declared, field.name) != getattr(start, field.name)]
    return ", ".join(f"`{name}` is {_shown(getattr(declared, name))}" for name in changed) + f": {reason}"


def _shown(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, frozenset):
        return ", ".join(f"`{technique}`" for technique in TECHNIQUES if technique in default)
    return f"`{default}`"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
