"""`lowtide optimize --level`: what a framework's own memory optimizer does, with its estimates before and after."""

from collections.abc import Iterable
from pathlib import Path

from lowtide.cli.output import print_json, print_page
from lowtide.cli.outputs import save
from lowtide.cli.progress import Progress
from lowtide.core.errors import UsageError
from lowtide.core.units import ByteUnit
from lowtide.frameworks.model import HasLevels, Model, Rewritten
from lowtide.reporting.fields import LevelFields

_NAMES_SHOWN = 5


def at_level(
    opened: Model,
    model: str,
    output: Path | None,
    measure: bool,
    level: str,
    devices: Iterable[str],
    as_json: bool,
) -> int:
    """Rewrite a model at a level and write it to an output; returns the exit code."""
    if output is None:
        raise UsageError("a level rewrites the program; say where it goes with -o OUTPUT")
    if measure:
        raise UsageError("--measure compares plans; measure what a level wrote by `lowtide optimize OUTPUT --measure`")
    capacities = dict(_capacity(each) for each in devices)
    with Progress() as progress:
        if not isinstance(opened, HasLevels):
            raise UsageError(f"{model} has no levels, which are TensorFlow's and ONNX Runtime's; leave out --level")
        progress(f"rewriting at level {level}")
        rewritten = opened.rewritten(level, capacities)
        save(output, rewritten.write)
    if as_json:
        print_json("level", _to_json(level, rewritten))
    else:
        print_page(_to_text(level, rewritten))
    return 0


def _capacity(text: str) -> tuple[str, str]:
    name, sign, size = text.rpartition("=")
    if not sign or not name:
        raise UsageError(f"--device {text!r} is not NAME=SIZE, like /gpu:0=4GiB")
    return name, size


def _to_json(level: str, rewritten: Rewritten) -> LevelFields:
    return {
        "level": level,
        "before_bytes": rewritten.before_bytes,
        "after_bytes": rewritten.after_bytes,
        "done": rewritten.done,
    }


def _to_text(level: str, rewritten: Rewritten) -> str:
    lines = [f"level {level}, by the framework's own estimate of the peak:"]
    unit = ByteUnit(rewritten.before_bytes, rewritten.after_bytes)
    for device, before in rewritten.before_bytes.items():
        lines.append(f"  {device}: {unit.write(before)} before, {unit.write(rewritten.after_bytes[device])} after")
    for what, names in rewritten.done.items():
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            lines.append(f"  {what}: {', '.join(names[:_NAMES_SHOWN])}{more}")
    return "\n".join(lines)
