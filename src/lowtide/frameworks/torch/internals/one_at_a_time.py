"""One thread at a time for tracing, rewriting and compiling, which change global state of PyTorch."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from torch._dynamo.convert_frame import compile_lock

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value")

TRACING = compile_lock
"""The reentrant lock that Dynamo holds while it compiles; it also protects the patches of tracers."""


def one_at_a_time(function: Callable[Parameters, Value]) -> Callable[Parameters, Value]:
    """Return a function that waits until no other thread traces or compiles."""

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        with TRACING:
            return function(*args, **kwargs)

    return call
