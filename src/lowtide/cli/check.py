"""`lowtide check`: memory limits for continuous integration."""

import tomllib
from pathlib import Path
from typing import Any

import click
import msgspec

from lowtide.api.opening import open_model
from lowtide.cli import options
from lowtide.cli.output import print_json, print_page
from lowtide.cli.progress import Progress
from lowtide.core.effort import EffortName
from lowtide.core.errors import MalformedInputError, UsageError
from lowtide.reporting.gate import Gate, check_runs, read_limits
from lowtide.reporting.gate_formats import FORMATS

_TABLE = "[[tool.lowtide.check]]"
_Limit = str | int | float | None


class _Check(msgspec.Struct, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A program and its limits, as in a table of pyproject.toml."""

    model: str
    max_peak: _Limit = None
    max_total: _Limit = None
    max_arena: _Limit = None
    max_growth: _Limit = None
    against: str | None = None
    planned: bool = False
    device: str | None = None
    dim: dict[str, int] = msgspec.field(default_factory=dict[str, int])


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
@options.device
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
    device: str | None,
    dims: dict[str, int],
    trust: bool,
    effort: EffortName,
    as_json: bool,
) -> int:
    """Exit with 1 if MODEL exceeds a memory limit, and list the tensors at the peak or those that grew.

    Without MODEL, run the checks of [[tool.lowtide.check]] in ./pyproject.toml.
    """
    given = _Check(
        model=model or "",
        max_peak=max_peak,
        max_total=max_total,
        max_arena=max_arena,
        max_growth=max_growth,
        against=against,
        planned=planned,
        device=device,
        dim=dims,
    )
    if model is None and given != _Check(model=""):
        raise UsageError("limits need a MODEL; give one, or leave the limits out to run the checks of pyproject.toml")
    gates: list[Gate] = []
    with Progress() as progress:
        for each in _from_project(Path("pyproject.toml")) if model is None else [given]:
            limits = read_limits(msgspec.structs.asdict(each))
            progress(f"checking {each.model}")
            if each.planned and each.device is not None:
                raise UsageError("--planned makes plans without a budget, which --device has none of; leave either out")
            names = [each.model, *filter(None, [each.against])]
            runs = [open_model(name, each.dim, trust=trust, device=each.device).as_it_runs for name in names]
            gates.append(check_runs(runs, limits, planned=each.planned, effort=effort))
    if as_json:
        print_json("check", {"ok": all(gate.ok for gate in gates), "checks": [gate.to_json() for gate in gates]})
    else:
        page = FORMATS[output_format](gates)
        show = print_page if output_format == "text" else click.echo  # machine formats must not be wrapped
        show(page)
    return 0 if all(gate.ok for gate in gates) else 1


def _from_project(path: Path) -> list[_Check]:
    if not path.is_file():
        raise UsageError(f"no MODEL given and no {path} found; give a model and its limits")
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedInputError(f"{path}: not TOML: {error}") from None
    checks: Any = document.get("tool", {}).get("lowtide", {}).get("check")
    if not isinstance(checks, list) or not checks:
        raise UsageError(f"{path} has no {_TABLE}; add one with a model and its limits, or give a MODEL")
    try:
        return msgspec.convert(checks, list[_Check])
    except msgspec.ValidationError as error:
        keys = ", ".join(_Check.__struct_encode_fields__)
        raise MalformedInputError(f"{path}: {_TABLE}: {error}; its keys are {keys}") from None
