"""What jaxlib does for this framework: protocol buffers, StableHLO and its own objects become HLO text."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from lowtide.errors import LowtideError, MalformedInputError, MissingExtraError, one_line

ENDINGS_THAT_NEED_IT = "HloProto and StableHLO"


def text_of_proto(content: bytes, where: str) -> str:
    """Return the text of a serialized HloModuleProto; raises MalformedInputError, MissingExtraError."""
    hlo = _module("jaxlib._hlo", where)
    return _guarded(lambda: text_of_module(hlo.HloModule.from_serialized_hlo_module_proto(content)), where)


def text_of_mlir(content: bytes, where: str) -> str:
    """Return the HLO text of a StableHLO module in text or bytecode; raises MalformedInputError, MissingExtraError."""
    native = _module("jaxlib._jax", where)

    def convert() -> str:
        computation = native.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=False)
        return text_of_module(computation.get_hlo_module())

    return _guarded(convert, where)


def text_of_module(module: Any) -> str:
    """Return the text of jaxlib's HloModule with all that it holds, large constants included."""
    options = _module("jaxlib._hlo", "the module").HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_backend_config = True
    return str(module.to_string(options))


def _module(name: str, where: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError("jax", f"{where} is read through jaxlib: {one_line(error)}") from None


def _guarded(convert: Callable[[], str], where: str) -> str:
    """Turn whatever jaxlib raises into one line."""
    try:
        return convert()
    except LowtideError:
        raise
    except Exception as error:
        raise MalformedInputError(f"{where}: jaxlib cannot read this: {one_line(error)}") from None
