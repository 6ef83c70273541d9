"""What jaxlib does for this framework: protocol buffers, StableHLO and its own objects become HLO text."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def text_of_module(module: Any) -> str:
    """Return the text of jaxlib's HloModule with all that it holds, large constants included."""
    options: Any = import_module("jaxlib._hlo").HloPrintOptions()
    options.print_large_constants = True
    options.print_metadata = True
    options.print_backend_config = True
    return str(module.to_string(options))


def _text_of_proto(content: bytes) -> str:
    hlo: Any = import_module("jaxlib._hlo")
    return text_of_module(hlo.HloModule.from_serialized_hlo_module_proto(content))


def _text_of_mlir(content: bytes) -> str:
    native: Any = import_module("jaxlib._jax")
    computation = native.mlir.mlir_module_to_xla_computation(content, use_tuple_args=False, return_tuple=False)
    return text_of_module(computation.get_hlo_module())


CONVERSIONS: Mapping[str, Callable[[bytes], str]] = {"proto": _text_of_proto, "mlir": _text_of_mlir}
"""From a serialized HloModuleProto, or a StableHLO module in text or bytecode, to HLO text."""
