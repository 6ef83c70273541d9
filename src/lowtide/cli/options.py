"""Options and arguments that verbs share. Help and defaults of planning options come from `PlanSettings`."""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from lowtide.api.outputs import check_separate
from lowtide.core.effort import EFFORT_NAMES, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.techniques import Techniques, checked_techniques
from lowtide.core.units import given_bytes, parse_bandwidth
from lowtide.engine.costs import Prices, carries_costs, devices, read_costs
from lowtide.engine.graph import Graph
from lowtide.engine.offload import Host
from lowtide.engine.planning.budget import GivenBudget, given_budget
from lowtide.engine.planning.settings import SENTENCES, PlanSettings, default_techniques

MOST_BYTES = 2**62
"""Largest size on the command line."""


def parse_size(_ctx: click.Context, param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    return checked_size(f"--{(param.name or '').replace('_', '-')}", given_bytes(text))


def checked_size(option: str, size: int) -> int:
    if size > MOST_BYTES:
        raise UsageError(f"{option} {size} is too large; give at most {MOST_BYTES} bytes")
    return size


Command = TypeVar("Command", bound=Callable[..., Any])
_MOST_BYTES_PER_S = 2**62


def _parse_bandwidth(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    if text is None:
        return None
    speed = parse_bandwidth(text)
    if not 0 < speed <= _MOST_BYTES_PER_S:
        raise UsageError(f"--host-bandwidth {text} is not a valid speed; give one like 25GB/s, more than 0")
    return speed


def _together(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds several options; help lists them in this order."""

    def added(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return added


host_options = _together(
    click.option(
        "--host-bandwidth",
        metavar="SPEED",
        callback=_parse_bandwidth,
        help="Add a host to offload to, with this copy speed each way, like 25GB/s.",
    ),
    click.option("--host-capacity", metavar="SIZE", callback=parse_size, help="Memory of that host, like 64GiB."),
)


def host_of(bandwidth: int | None, capacity: int | None) -> Host | None:
    if bandwidth is not None:
        return Host(bandwidth_bytes_per_s=bandwidth, capacity_bytes=capacity)
    if capacity is not None:
        raise UsageError("--host-capacity needs --host-bandwidth; give both, or neither")
    return None


_SIZE = re.compile(r"[0-9]{1,18}")


def _parse_dims(_ctx: click.Context, _param: click.Parameter, values: Iterable[str]) -> dict[str, int]:
    dims: dict[str, int] = {}
    for value in values:
        name, sign, size = value.rpartition("=")
        if not sign or not name or not _SIZE.fullmatch(size):
            raise click.BadParameter(f"{value!r} is not NAME=N with a whole number N")
        dims[name] = int(size)
    return dims


def _parse_techniques(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Techniques | None:
    return None if value is None else checked_techniques(part.strip() for part in value.split(",") if part.strip())


def _parse_effort(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    check_effort(value)
    return value


def _parse_budget(_ctx: click.Context, _param: click.Parameter, text: str | None) -> GivenBudget:
    return given_budget(text)


def pricing(named: str) -> str | Callable[[Graph], Prices]:
    """Return the costs of settings: a profile, or a function that reads a costs file."""
    if named == "given":
        return named
    return lambda graph: read_costs(named, graph)


def _setting(name: str, option: str, **how: Any) -> Callable[[Command], Command]:
    default = how.pop("default", getattr(PlanSettings, name))
    how = {"show_default": default is not None, **how}
    return click.option(option, name, default=default, help=SENTENCES[name], **how)


def file(*names: str, help: str, required: bool = False) -> Callable[[Command], Command]:
    return click.option(*names, type=click.Path(path_type=Path), required=required, help=help)


model = click.argument("model")
dims = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=N", callback=_parse_dims, help="Bind a dynamic dimension; repeatable."
)
trust = click.option("--trust", is_flag=True, help="Allow a .pt2 file to run code when loaded.")
json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
over_budget = click.option(
    "--allow-over-budget", "over_budget", is_flag=True, help="Accept a plan that is marked as over its budget."
)
plan = file("--plan", "plan_path", help="Use this plan instead of making one.")
annotate = click.option(
    "--annotate", is_flag=True, help="Write the plan to the metadata of the nodes of an .onnx OUTPUT, for Netron."
)
force = click.option("--force", is_flag=True, help="Allow an output to replace an input file.")
budget = _setting("budget", "--budget", metavar="SIZE|SHARE", callback=_parse_budget)
transient = _setting("transient", "--transient", is_flag=True)


def allow(default: str) -> Callable[[Command], Command]:
    return _setting(
        "techniques",
        "--allow",
        metavar="TECHNIQUES",
        callback=_parse_techniques,
        default=None,
        show_default=default,
    )


techniques = allow("reorder,share; with a budget also recompute")
in_place = _setting("in_place", "--in-place/--no-in-place")
addresses = _setting("addresses", "--addresses/--no-addresses")
scheduler = _setting("scheduler", "--scheduler", metavar="NAME")
costs = _setting("costs", "--costs", metavar="PROFILE|FILE")
effort = _setting("effort", "--effort", metavar=f"[{'|'.join(EFFORT_NAMES)}]", callback=_parse_effort)
prove = _setting("prove", "--prove", is_flag=True)

analysis = _together(model, dims, trust, in_place, effort, json)
device = click.option(
    "--device",
    metavar="NAME|FILE",
    help=f"Lower MODEL, a PyTorch training step, for this absent device ({', '.join(devices())}, or a JSON file).",
)
_planning = _together(
    *(host_options, dims, force, trust),
    *(budget, transient, techniques, in_place, addresses, scheduler, costs, effort, prove, json),
)


def planning(command: Command) -> Command:
    """Add the options of verbs that make a plan, and pass them to the verb as `settings`.

    Raises UsageError if an output collides with another or an input.
    """

    @wraps(command)
    def collected(**given: Any) -> Any:
        check_separate(
            {"MODEL": given["model"], "--costs": given["costs"], "--plan": given.get("plan_path")},
            {"-o": given["output"], "--proof": given.get("proof_path")},
            force=given.pop("force"),
        )
        names = ("budget", "transient", "techniques", "in_place", "addresses", "scheduler", "effort", "prove")
        asked = {name: given.pop(name) for name in names}
        if asked["techniques"] is None:
            asked["techniques"] = default_techniques(asked["budget"])
        settings = PlanSettings(
            **asked,
            costs=_pricing(given.pop("costs"), asked["techniques"]),
            host=host_of(given.pop("host_bandwidth"), given.pop("host_capacity")),
        )
        return command(settings=settings, **given)

    return _planning(collected)  # pyright: ignore


def _pricing(named: str, allowed: Techniques) -> Callable[[Graph], Prices]:
    """Return a function that prices a graph; it raises UsageError if offload, which needs seconds, lacks costs."""

    def prices(graph: Graph) -> Prices:
        if "offload" in allowed and named == "given" and not carries_costs(graph):
            raise UsageError(
                f"graph {graph.name!r} has no costs, which offload needs; add --costs eager, or a costs file"
            )
        return read_costs(named, graph)

    return prices
