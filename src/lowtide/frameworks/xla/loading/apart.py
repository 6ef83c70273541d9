"""Content handed to jaxlib's parsers in a process of its own: they may end theirs, or never return."""

import subprocess
import sys
from importlib.util import find_spec

from lowtide.core.errors import MalformedInputError, MissingExtraError

_CHILD = "lowtide.frameworks.xla.loading.child"
REFUSED = 3
"""How the child ends where jaxlib says that it cannot read the content."""
_SECONDS = 300


def text_of_content(conversion: str, content: bytes, where: str) -> str:
    """Return the HLO text of a file's content by one of `jaxlib.CONVERSIONS`.

    Raises MissingExtraError without jaxlib, MalformedInputError where its parser refuses the content, ends its process,
    or takes more than five minutes.
    """
    if find_spec("jaxlib") is None:
        raise MissingExtraError("jax", f"{where} is read through jaxlib, which is not installed")
    path = [entry for entry in sys.path if entry]
    command = [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; import {_CHILD} as child; child.main()"]
    try:
        run = subprocess.run([*command, conversion], input=content, capture_output=True, check=False, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        raise MalformedInputError(f"{where}: jaxlib was not done with this in {_SECONDS} s; is it damaged?") from None
    if run.returncode == 0:
        return run.stdout.decode()
    if run.returncode == REFUSED:
        why = (run.stderr.decode(errors="replace").splitlines() or ["no message"])[-1]
        raise MalformedInputError(f"{where}: jaxlib cannot read this: {why}")
    raise MalformedInputError(f"{where}: jaxlib's parser breaks down over this; is it damaged?")
