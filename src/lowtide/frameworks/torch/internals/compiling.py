"""`torch.compile` and `Module.compile` with the backend "lowtide", and one thread at a time for all tracing.

Tracing, rewriting and compiling change PyTorch's global state.
"""

# pyright: reportAttributeAccessIssue=false, reportPrivateUsage=false, reportUnknownMemberType=false

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from types import MethodType
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import nn
from torch._dynamo.convert_frame import compile_lock

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")

TRACING = compile_lock
"""Dynamo's reentrant lock for compiling; it also protects patches of tracers."""


def one_at_a_time(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Return a function that waits while another thread traces or compiles."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        with TRACING:
            return function(*args, **kwargs)

    return call


_backends: set[str] = set()


def compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="lowtide", options=dict(options))


def compiled_with(compiled: Any) -> tuple[str, object] | None:
    """Return the backend name and options of a compiled function or module, else None."""
    from torch._dynamo.eval_frame import OptimizeContext, OptimizedModule, innermost_backend

    if isinstance(compiled, OptimizedModule):
        contexts: list[object] = [compiled.dynamo_ctx]
    else:
        call = cast("object", compiled._compiled_call_impl) if isinstance(compiled, nn.Module) else compiled
        cells = getattr(call, "__closure__", None) or () if hasattr(call, "_torchdynamo_orig_callable") else ()
        contexts = [cell.cell_contents for cell in cells]
    for context in contexts:
        if isinstance(context, OptimizeContext):
            callback: Any = context.callback
            backend: Any = innermost_backend(callback)
            return getattr(backend, "compiler_name", str(backend)), getattr(backend, "kwargs", {}).get("options")
    return None


def captured_whole(function: Callable[..., Any], receive: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function with backend `receive`, without logging; it fails if one graph cannot hold it."""
    from torch._dynamo import config

    names = ("debug", "info", "warning", "warning_once", "warning_advice", "error")
    found = [getattr(logging.Logger, name, None) for name in names]
    config.ignore_logging_functions = {*config.ignore_logging_functions, *filter(None, found)}
    return torch.compile(function, backend=receive, dynamic=False, fullgraph=True)


def uncompiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compiler.disable(function)


def capture_own_modules(backend: str) -> None:
    """Let `Module.compile` capture modules of PyTorch's classes, whose frames TorchDynamo skips."""
    from torch._dynamo import external_utils  # takes seconds to load
    from torch._dynamo.eval_frame import OptimizeContext

    if not _backends:
        compile_call = OptimizeContext.__call__

        def compile_with_frame(self: OptimizeContext, fn: Any) -> Any:
            return compile_call(self, external_utils.wrap_inline(fn) if _is_skipped(self, fn) else fn)

        OptimizeContext.__call__ = compile_with_frame
    _backends.add(backend)


def _is_skipped(context: Any, function: Any) -> bool:
    from torch._dynamo import trace_rules
    from torch._dynamo.eval_frame import innermost_backend

    if not (isinstance(function, MethodType) and function.__func__ is nn.Module._call_impl):
        return False
    is_ours = getattr(innermost_backend(context.callback), "compiler_name", None) in _backends
    return is_ours and trace_rules.check(function.__self__.forward)
