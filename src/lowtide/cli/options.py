"""Options and arguments that several verbs share, declared once; those of planning derive from its settings."""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from lowtide.api.outputs import check_separate
from lowtide.cli import host
from lowtide.core.effort import EFFORT_NAMES, check_effort
from lowtide.core.errors import UsageError
from lowtide.core.techniques import Techniques, checked_techniques
from lowtide.engine.costs import Prices, carries_costs, read_costs
from lowtide.engine.graph import Graph
from lowtide.engine.planning.settings import SENTENCES, PlanSettings, default_techniques

Command = TypeVar("Command", bound=Callable[..., Any])
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


def _setting(name: str, option: str, **how: Any) -> Callable[[Command], Command]:
    """Declare the option of a setting: its help is the setting's sentence, its default that of the setting."""
    default = how.pop("default", getattr(PlanSettings, name))
    how = {"show_default": default is not None, **how}
    return click.option(option, name, default=default, help=SENTENCES[name], **how)


model = click.argument("model")
dims = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=N", callback=_parse_dims, help="Bind a dynamic dimension; repeatable."
)
trust = click.option(
    "--trust", is_flag=True, help="Let a .pt2 file run code while it is loaded, where it holds more than data."
)
json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
over_budget = click.option(
    "--allow-over-budget", "over_budget", is_flag=True, help="Accept a plan that says itself that it is infeasible."
)
plan = click.option(
    "--plan", "plan_path", type=click.Path(path_type=Path), help="Take this plan, instead of making one."
)
annotate = click.option(
    "--annotate", is_flag=True, help="Say in the metadata of an .onnx OUTPUT's nodes what the plan says, for Netron."
)
force = click.option("--force", is_flag=True, help="Let an output replace a file that is read.")
budget = _setting("budget", "--budget", metavar="SIZE")
transient = _setting("transient", "--transient", is_flag=True)
techniques = _setting(
    "techniques",
    "--allow",
    metavar="TECHNIQUES",
    callback=_parse_techniques,
    default=None,
    show_default="reorder,share; with a budget also recompute",
)
in_place = _setting("in_place", "--in-place/--no-in-place")
addresses = _setting("addresses", "--addresses/--no-addresses")
scheduler = _setting("scheduler", "--scheduler", metavar="NAME")
costs = _setting("costs", "--costs", metavar="PROFILE|FILE")
effort = _setting("effort", "--effort", metavar=f"[{'|'.join(EFFORT_NAMES)}]", callback=_parse_effort)


def planning(command: Command) -> Command:
    """Add the options of every verb that makes a plan, and hand them to it as one record, `settings`.

    Its outputs, `output` and `proof_path`, are checked against one another and what is read.
    """

    @wraps(command)
    def collected(**given: Any) -> Any:
        check_separate(
            {"MODEL": given["model"], "--costs": given["costs"], "--plan": given.get("plan_path")},
            {"-o": given["output"], "--proof": given.get("proof_path")},
            force=given.pop("force"),
        )
        names = ("budget", "transient", "techniques", "in_place", "addresses", "scheduler", "effort")
        asked = {name: given.pop(name) for name in names}
        if asked["techniques"] is None:
            asked["techniques"] = default_techniques(asked["budget"])
        settings = PlanSettings(
            **asked,
            costs=_pricing(given.pop("costs"), asked["techniques"]),
            host=host.host_of(given.pop("host_bandwidth"), given.pop("host_capacity")),
        )
        return command(settings=settings, **given)

    for option in (
        *(json, effort, costs, scheduler, addresses, in_place, techniques, transient, budget),
        *(trust, force, dims, host.options),
    ):
        collected = option(collected)
    return collected  # pyright: ignore


def _pricing(named: str, allowed: Techniques) -> Callable[[Graph], Prices]:
    """Return what prices a graph as the user asks for, by a profile or a costs file.

    It raises UsageError where offload would weigh transfers in seconds against ops that nobody has priced.
    """

    def prices(graph: Graph) -> Prices:
        if "offload" in allowed and named == "given" and not carries_costs(graph):
            raise UsageError(
                f"graph {graph.name!r} does not say how long its ops take, which offload needs; add --costs eager, or "
                "a costs file"
            )
        return read_costs(named, graph)

    return prices
