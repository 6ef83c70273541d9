"""`lowtide check`: memory limits for continuous integration."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import click

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.core.errors import MalformedInputError, UsageError
from lowtide.reporting.gate import Gate, check_graph, read_limits
from lowtide.reporting.gate_formats import FORMATS

_KEYS = ("model", "max-peak", "max-total", "max-arena", "against", "max-growth", "planned", "dim")
_TABLE = "[[tool.lowtide.check]]"


@click.command("check")
@click.argument("model", required=False)
@click.option("--max-peak", metavar="SIZE", help="Limit of the peak, without persistent buffers.")
@click.option("--max-total", metavar="SIZE", help="Limit of the peak with persistent buffers.")
@click.option("--max-arena", metavar="SIZE", help="Limit of the arena (memory with addresses).")
@click.option("--against", metavar="BASE", help="The program that --max-growth compares with, of any kind.")
@click.option("--max-growth", metavar="PERCENT", help="Limit of the growth of the peak over BASE, like 1%.")
@click.option("--planned", is_flag=True, help="Check the planned program instead of the unmodified one.")
@click.option(
    "--output-format",
    type=click.Choice(list(FORMATS)),
    default="text",
    show_default=True,
    help="Format of the findings.",
)
@options.dims
@options.trust
@options.effort
@options.json
def command(
    model: str | None,
    max_peak: str | None,
    max_total: str | None,
    max_arena: str | None,
    against: str | None,
    max_growth: str | None,
    planned: bool,
    output_format: str,
    dims: dict[str, int],
    trust: bool,
    effort: EffortName,
    as_json: bool,
) -> int:
    """Exit with 1 if MODEL exceeds a memory limit, and list the tensors at the peak or those that grew.

    Without MODEL, run the checks of [[tool.lowtide.check]] in ./pyproject.toml.
    """
    limits = {"max-peak": max_peak, "max-total": max_total, "max-arena": max_arena, "max-growth": max_growth}
    asked: list[dict[str, Any]] = [{"model": model, "against": against, "planned": planned, "dim": dims, **limits}]
    if model is None:
        if against is not None or planned or dims or any(limit is not None for limit in limits.values()):
            raise UsageError(
                "limits need a MODEL; give one, or leave the limits out to run the checks of pyproject.toml"
            )
        asked = _from_project(Path("pyproject.toml"))
    gates: list[Gate] = []
    with Progress() as progress:
        for each in asked:
            limit = read_limits({name.replace("-", "_"): each.get(name) for name in limits})
            progress(f"checking {each['model']}")
            graph = open_model(each["model"], each.get("dim"), trust=trust).graph
            base = each.get("against")
            other = None if base is None else open_model(base, each.get("dim"), trust=trust).graph
            gates.append(check_graph(graph, limit, base=other, planned=each.get("planned", False), effort=effort))
    if as_json:
        print_json("check", {"ok": all(gate.ok for gate in gates), "checks": [gate.to_json() for gate in gates]})
    else:
        page = FORMATS[output_format](gates)
        show = print_page if output_format == "text" else click.echo  # machine formats must not be wrapped
        show(page)
    return 0 if all(gate.ok for gate in gates) else 1


def _from_project(path: Path) -> list[dict[str, Any]]:
    """Return the checks of a pyproject.toml; raises UsageError and MalformedInputError."""
    if not path.is_file():
        raise UsageError(f"no MODEL given and no {path} found; give a model and its limits")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedInputError(f"{path}: not TOML: {error}") from None
    checks: Any = document.get("tool", {}).get("lowtide", {}).get("check")
    if not isinstance(checks, list) or not checks:
        raise UsageError(f"{path} has no {_TABLE}; add one with a model and its limits, or give a MODEL")
    return [_checked(path, each) for each in cast("list[Any]", checks)]


def _checked(path: Path, each: Any) -> dict[str, Any]:
    """Return a check from the project file; raises MalformedInputError if it is invalid."""
    if not isinstance(each, Mapping):
        raise MalformedInputError(f"{path}: {_TABLE} is not a table; give a model and its limits in it")
    table = dict(cast("Mapping[str, Any]", each))
    unknown = sorted(table.keys() - set(_KEYS))
    if unknown:
        raise MalformedInputError(f"{path}: {_TABLE} has an unknown key {unknown[0]!r}; use {', '.join(_KEYS)}")
    if not isinstance(table.get("model"), str):
        raise MalformedInputError(f"{path}: {_TABLE} has no model; add the key model")
    if not isinstance(table.get("against", ""), str) or not isinstance(table.get("planned", False), bool):
        raise MalformedInputError(f"{path}: {_TABLE}: against must be a model name, planned true or false")
    dims = table.get("dim", {})
    if not isinstance(dims, dict) or not all(isinstance(size, int) for size in cast("dict[str, Any]", dims).values()):
        raise MalformedInputError(f"{path}: {_TABLE}: dim must map names to whole numbers")
    limits = [table[name] for name in _KEYS if name.startswith("max-") and name in table]
    if not all(isinstance(limit, str | int | float) for limit in limits):
        raise MalformedInputError(f"{path}: {_TABLE}: a limit must be a string like '6GiB' or '1%', or a number")
    return table
