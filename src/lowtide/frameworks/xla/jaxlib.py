"""jaxlib's conversions to HLO text, in a separate process because parsers may crash or hang."""

import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lowtide.core.errors import MalformedInputError, MissingExtraError, one_line

_MODULE = "lowtide.frameworks.xla.jaxlib"
_REFUSED = 3
_TIMEOUT_S = 300


def text_of_module(module: Any) -> str:
    """Return the text of jaxlib's HloModule, with large constants."""
    options: Any = hlo_classes().HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_backend_config = True
    return str(module.to_string(options))


def hlo_classes() -> Any:
    return import_module("jaxlib._hlo" if find_spec("jaxlib._hlo") else "jaxlib._jax")


def text_of_content(conversion: str, content: bytes, where: str) -> str:
    """Return the HLO text of a file's content; `conversion` is "proto" (HloModuleProto) or "mlir" (StableHLO).

    Raises MissingExtraError without jaxlib, MalformedInputError if its parser fails.
    """
    if find_spec("jaxlib") is None:
        raise MissingExtraError("jax", f"{where} is read through jaxlib, which is not installed")
    path = [entry for entry in sys.path if entry]
    code = f"import sys; sys.path[:] = {path!r}; import {_MODULE} as child; child.main()"
    command = [sys.executable, "-c", code, conversion]
    try:
        run = subprocess.run(command, input=content, capture_output=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise MalformedInputError(f"{where}: jaxlib did not finish within {_TIMEOUT_S} s; is it damaged?") from None
    if run.returncode == 0:
        return run.stdout.decode()
    if run.returncode == _REFUSED:
        reason = (run.stderr.decode(errors="replace").splitlines() or ["no message"])[-1]
        raise MalformedInputError(f"{where}: jaxlib cannot read this: {reason}")
    raise MalformedInputError(f"{where}: jaxlib's parser crashed; is it damaged?")


def main() -> None:
    try:
        text = _CONVERSIONS[sys.argv[1]](sys.stdin.buffer.read())
    except Exception as error:  # jaxlib may raise anything
        print(one_line(error), file=sys.stderr)
        sys.exit(_REFUSED)
    sys.stdout.buffer.write(text.encode())


def _text_of_proto(content: bytes) -> str:
    return text_of_module(hlo_classes().HloModule.from_serialized_hlo_module_proto(content))


def _text_of_mlir(content: bytes) -> str:
    native: Any = import_module("jaxlib._jax")
    computation = native.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=False)
    return text_of_module(computation.get_hlo_module())


_CONVERSIONS: Mapping[str, Callable[[bytes], str]] = {"proto": _text_of_proto, "mlir": _text_of_mlir}
