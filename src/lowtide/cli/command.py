"""The `lowtide` command: run a verb and turn errors into one line and an exit code."""

import importlib
import sys
import traceback
from io import TextIOWrapper
from typing import Any

import click

from lowtide.cli.interrupts import command_is_loaded, interrupted_code
from lowtide.core.errors import LowtideError, UsageError, unknown

_VERBS = (
    "inspect",
    "compare",
    "plan",
    "optimize",
    "apply",
    "verify",
    "report",
    "export",
    "check",
    "diff",
    "fits",
    "costs",
    "pack",
    "cache",
)


def _note_debug(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        ctx.obj.add("debug")  # `run` passes a set


_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    callback=_note_debug,
    help="Show the traceback of an error in the program.",
)


class _Verbs(click.Group):
    """A group that imports the module of a verb only when that verb runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            raise click.UsageError(unknown("verb", cmd_name, _VERBS), ctx)
        module: Any = importlib.import_module(f"lowtide.cli.{cmd_name}")
        verb: click.Command = module.command
        if _DEBUG not in verb.params:
            verb.params.append(_DEBUG)
        command_is_loaded()
        return verb


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lowtide")
def cli() -> None:
    """Make a computation graph fit in memory.

    MODEL is a .graph.json[.gz], .onnx, .pt2, .pb, .pbtxt or .hlo file, an export of Inductor, a memory snapshot of
    PyTorch, or package.module:callable that returns (function or module, example inputs).
    """


def run() -> int:
    stdout: Any = sys.stdout
    if isinstance(stdout, TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")  # names from files may not be printable on this terminal
    flags = set[str]()
    try:
        code = cli.main(standalone_mode=False, obj=flags)
    except LowtideError as error:
        foreign = error.__cause__
        if "debug" in flags and foreign is not None:
            click.echo("".join(traceback.format_exception(foreign)), err=True, nl=False)
        click.echo(f"lowtide: {error}{' (--debug shows where)' if foreign and 'debug' not in flags else ''}", err=True)
        code = error.exit_code
    except click.exceptions.Abort:
        click.echo("lowtide: interrupted", err=True)
        code = interrupted_code()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = error.exit_code
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        where = context.command_path if context else "lowtide"
        click.echo(f"lowtide: {' '.join(error.format_message().split())} (see {where} --help)", err=True)
        code = UsageError.exit_code
    except OSError as error:
        click.echo(f"lowtide: cannot write the result: {error.strerror or error}", err=True)
        code = 1
    return code if isinstance(code, int) else 0
