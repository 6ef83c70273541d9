"""The `lowtide` command: finds the verb and turns errors into one line and an exit code."""

import importlib
import sys
from io import TextIOWrapper
from typing import Any

import click

from lowtide.cli.interrupts import interrupted_code
from lowtide.errors import LowtideError, UsageError

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
    "costs",
    "pack",
)


class _Verbs(click.Group):
    """Loads a verb's file only when that verb runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _VERBS:
            return None
        module: Any = importlib.import_module(f"lowtide.cli.{cmd_name}")
        return module.command


@click.group(cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lowtide")
def cli() -> None:
    """Make a computation graph fit in memory.

    MODEL is a .graph.json[.gz], .onnx, .pt2, .pb, .pbtxt or .hlo file, an export of Inductor, a memory snapshot of
    PyTorch, or package.module:callable that returns (function or module, example inputs).
    """


def run() -> int:
    """Run the command line and return its exit code."""
    stdout: Any = sys.stdout
    if isinstance(stdout, TextIOWrapper):
        stdout.reconfigure(errors="backslashreplace")  # names come from files and need not fit the terminal
    try:
        code = cli.main(standalone_mode=False)
    except LowtideError as error:
        click.echo(f"lowtide: {error}", err=True)
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
