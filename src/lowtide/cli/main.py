"""The `lowtide` command: finds the verb and turns errors into one line and an exit code."""

import importlib
import sys
from typing import Any

import click

from lowtide.errors import LowtideError

_VERBS = ("inspect", "compare", "plan", "optimize", "apply", "verify")
_INTERRUPTED = 130


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

    MODEL is a .graph.json[.gz], .onnx or .pt2 file, or package.module:callable that returns (function or module,
    example inputs).
    """


def main() -> None:
    """Run the command line and exit: 0 ok, 1 budget or verification failed, 2 usage, 3 bad input, 130 interrupted."""
    try:
        code = cli.main(standalone_mode=False)
    except LowtideError as error:
        click.echo(f"lowtide: {error}", err=True)
        code = error.exit_code
    except click.exceptions.Abort:
        click.echo("lowtide: interrupted", err=True)
        code = _INTERRUPTED
    except click.ClickException as error:
        error.show()
        code = 2
    except BrokenPipeError:
        # The reader of our output is gone; writing more, even at shutdown, would only end in a traceback.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
