"""Options and arguments that several verbs share, declared once."""

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from lowtide.effort import DEFAULT_EFFORT
from lowtide.errors import UsageError
from lowtide.search import EFFORTS
from lowtide.units import parse_bytes

Command = TypeVar("Command", bound=Callable[..., Any])
_SIZE = re.compile(r"[0-9]{1,18}")
MOST_BYTES = 2**62
"""No size given on the command line is larger."""
MEANS = ("reorder", "share", "recompute", "offload")


def _parse_dims(_ctx: click.Context, _param: click.Parameter, values: Iterable[str]) -> dict[str, int]:
    dims: dict[str, int] = {}
    for value in values:
        name, sign, size = value.rpartition("=")
        if not sign or not name or not _SIZE.fullmatch(size):
            raise click.BadParameter(f"{value!r} is not NAME=N with a whole number N")
        dims[name] = int(size)
    return dims


def parse_size(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    """Read an option's value as bytes, "8GiB"; raises UsageError."""
    if text is None:
        return None
    size = parse_bytes(text)
    if size > MOST_BYTES:
        option = (param.name or "").replace("_", "-")
        raise UsageError(f"--{option} {text} is too large; give at most {MOST_BYTES} bytes")
    return size


def _parse_means(_ctx: click.Context, _param: click.Parameter, value: str) -> frozenset[str]:
    means = [part.strip() for part in value.split(",") if part.strip()]
    for name in means:
        if name not in MEANS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(MEANS)}")
    return frozenset(means)


model = click.argument("model")
dims = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=N", callback=_parse_dims, help="Bind a dynamic dimension; repeatable."
)
json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
in_place = click.option(
    "--no-in-place", "in_place", flag_value=False, default=True, help="Use no optional in-place pair."
)
allow = click.option(
    "--allow",
    default="reorder,share",
    show_default=True,
    metavar="MEANS",
    callback=_parse_means,
    help=f"Means the plan may use, of: {', '.join(MEANS)}.",
)
budget = click.option(
    "--budget", metavar="SIZE", help='Bytes the memory must hold, like 8GiB, or "70%" of the baseline.'
)
scheduler = click.option("--scheduler", metavar="NAME", help="Use this order only, instead of the best of all.")
costs = click.option(
    "--costs",
    default="given",
    show_default=True,
    metavar="PROFILE|FILE",
    help="What ops cost: given (by the model), eager, fused, flops, or a costs file of measured figures.",
)
effort = click.option(
    "--effort",
    type=click.Choice(list(EFFORTS)),
    default=DEFAULT_EFFORT,
    show_default=True,
    help="How much work the search may do.",
)


def planning(command: Command) -> Command:
    """Add the options of every verb that makes a plan."""
    for option in (json, effort, costs, scheduler, in_place, allow, budget, dims):
        command = option(command)
    return command
