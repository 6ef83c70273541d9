"""TorchDynamo: captured graphs, and the frames that it skips."""

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import currentframe
from pathlib import Path
from typing import Any

from torch._dynamo.backends.common import aot_autograd as aot_autograd
from torch._dynamo.callback import callback_handler
from torch._dynamo.symbolic_convert import TensorifyState
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental._backward_state import BackwardState
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.symbol import SymT, symbol_is_type

from lowtide.frameworks.torch.internals.nodes import copied_graph


def takes_hooks(inputs: Sequence[Any]) -> bool:
    """Return whether a graph has backward hooks, which only compiled autograd runs."""
    return any(isinstance(each, BackwardState) for each in inputs)


def differentiates(module: GraphModule) -> bool:
    """Return whether a graph computes gradients by `torch.func`."""
    return any(getattr(node.target, "__name__", "") == "_grad_increment_nesting" for node in module.graph.nodes)


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a graph: compilers change their input."""
    copy = copied_graph(module)
    for node, made in zip(module.graph.nodes, copy.graph.nodes, strict=True):
        if hasattr(node, "_dynamo_source"):
            made._dynamo_source = node._dynamo_source  # pyright: ignore[reportAttributeAccessIssue,reportPrivateUsage]
    names = vars(module).get("_param_name_to_source")
    if names is not None:
        copy._param_name_to_source = names  # pyright: ignore[reportPrivateUsage]
    return copy


@dataclass(frozen=True, slots=True, eq=False)
class CaptureSnapshot:
    """A captured graph that can be compiled again."""

    module: GraphModule
    context: TracingContext

    @contextmanager
    def compiling(self) -> Generator[tuple[GraphModule, list[Any]]]:
        """Yield a copy of the graph and its fake inputs, in the capture's tracing state."""
        module = copied(self.module)
        symbols: list[Any] = [] if self._shapes is None else list(self._shapes.backed_var_to_val)
        for symbol in symbols:
            if symbol_is_type(symbol, SymT.FLOAT):
                TensorifyState.specialize(str(symbol))  # else the analysis would restart
        try:
            with tracing(self.context):
                yield module, [_with_known_number(each, self.context.fake_mode) for each in _example_inputs(module)]
        finally:
            TensorifyState.clear()

    @property
    def _shapes(self) -> ShapeEnv | None:
        return None if self.context.fake_mode is None else self.context.fake_mode.shape_env

    @property
    def n_guards(self) -> int:
        return 0 if self._shapes is None else len(self._shapes.guards)


def snapshot_capture(module: GraphModule) -> CaptureSnapshot | None:
    """Return a snapshot of the current capture, unless an input has no fake value."""
    context = TracingContext.try_get()
    if context is None or any(each is None for each in _example_inputs(module)):
        return None
    return CaptureSnapshot(copied(module), context)


def _with_known_number(value: Any, mode: FakeTensorMode | None) -> Any:
    """Return an input that is a number of the program as a fake tensor of the compiler, which would forget its symbol.

    TorchDynamo captures such numbers in a fake mode of its own.
    """
    if mode is None or not isinstance(value, FakeTensor) or value.item_memo is None:
        return value
    known = mode.from_tensor(value)
    known.item_memo = value.item_memo
    return known


def _example_inputs(module: GraphModule) -> list[Any]:
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]


def watch_skipped_frames(backend: str, report: Callable[[Any, str, str], None]) -> None:
    """Report options, function and reason of each frame that TorchDynamo skips."""
    if not _watchers:
        clear = callback_handler.clear

        def clear_others() -> None:  # `torch._dynamo.reset` drops all callbacks
            clear()
            callback_handler.register_end_callback(_report_skipped)

        callback_handler.clear = clear_others
        callback_handler.register_end_callback(_report_skipped)
    _watchers[backend] = report


_watchers: dict[str, Callable[[Any, str, str], None]] = {}
_SKIPS = ("Unsupported", "SkipFrame", "UserError", "RecompileLimitExceeded")


def _report_skipped(_event: object) -> None:
    error = sys.exc_info()[1]
    frame: Any = currentframe()
    while frame is not None and not (frame.f_code.co_name == "_compile" and "compiler_fn" in frame.f_locals):
        frame = frame.f_back
    if frame is None or frame.f_locals.get("one_graph") or type(error).__name__ not in _SKIPS:
        return  # with fullgraph=True the user sees the error
    compiler, code = frame.f_locals["compiler_fn"], frame.f_locals["code"]
    report = _watchers.get(getattr(compiler, "compiler_name", ""))
    if report is not None:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        given = getattr(compiler, "kwargs", {}).get("options")
        report(given, f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})", reason)
