"""Write docs/settings.md from the record of settings and from the faces that take them; run it after a change."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from lowtide import minimize
from lowtide.cli.plan import command
from lowtide.core.techniques import TECHNIQUES
from lowtide.engine.planning.settings import SENTENCES, PlanSettings
from lowtide.frameworks.torch.planning.options import BACKEND_DEFAULTS, DEFAULTS, Options
from lowtide.torch import training_step


def _written(option: click.Parameter) -> str:
    return max([*option.opts, *option.secondary_opts], key=len)


PAGE = Path(__file__).parents[1] / "docs" / "settings.md"
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "techniques": ("allow",),
    "host": ("host_bandwidth", "host_capacity"),
}
"""What faces call a setting, where that is not its name."""
FACES: Mapping[str, Mapping[str, str]] = {
    "`lowtide.minimize`": {name: name for name in inspect.signature(minimize).parameters},
    "command line": {str(option.name): _written(option) for option in command.params},
    '`backend="lowtide"`': {field.name: field.name for field in fields(Options)},
    "`training_step`": {name: name for name in inspect.signature(training_step).parameters},
}
"""Every face with its parameters, and how they are written there."""
OVERRIDES: Mapping[str, tuple[PlanSettings, PlanSettings, str]] = {
    "PyTorch's faces": (
        DEFAULTS,
        PlanSettings(),
        "whoever gives a budget there wants the program to fit, so that ops may run again, and PyTorch places buffers",
    ),
    "the backend": (BACKEND_DEFAULTS, DEFAULTS, "planning is to stay short beside compiling"),
}
"""Defaults that differ: by face, the declared ones, those they start from, and the reason."""
HEAD = """# Settings

What planning takes, everywhere: `PlanSettings` declares each setting once, with its default
and its sentence; this page is written by `scripts/write_settings.py`. A technique
that would be ignored is refused, with the reason.
"""


def page() -> str:
    """Return the page."""
    rows = [_row(field.name) for field in fields(PlanSettings)]
    head = ["setting", *FACES, "default", "what it is"]
    table = [_line(head), _line(["---"] * len(head)), *rows]
    others = [f"- {face}: {_differences(*declared)}." for face, declared in OVERRIDES.items()]
    return "\n".join([HEAD, *table, "", "Other defaults, each declared at one place:", "", *others, ""])


def _row(name: str) -> str:
    names = (name, *OTHER_NAMES.get(name, ()))
    taken = [", ".join(f"`{face[each]}`" for each in names if each in face) or "-" for face in FACES.values()]
    return _line([f"`{name}`", *taken, _shown(getattr(PlanSettings, name)), SENTENCES[name]])


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
