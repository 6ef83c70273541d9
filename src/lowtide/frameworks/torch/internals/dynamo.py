"""TorchDynamo: what hands its graphs to AOTAutograd."""
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import currentframe
from pathlib import Path
from typing import Any

from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.callback import callback_handler
from torch._dynamo.symbolic_convert import TensorifyState
from torch._guards import TracingContext, tracing
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental._backward_state import BackwardState
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._sympy.symbol import SymT, symbol_is_type

__all__ = [
    "CapturedNow",
    "aot_autograd",
    "captured_now",
    "copied",
    "takes_hooks",
    "watch_skipped_frames",
]


def takes_hooks(inputs: Sequence[Any]) -> bool:
    """Tell whether a captured graph is given hooks for its backward pass, which only compiled autograd runs then."""
    return any(isinstance(each, BackwardState) for each in inputs)


def copied(module: GraphModule) -> GraphModule:
    """Return a copy of a captured graph to compile: compilers own and change what they are given."""
    graph, made = Graph(), dict[Node, Node]()
    for node in module.graph.nodes:
        made[node] = graph.node_copy(node, made.__getitem__)
        if hasattr(node, "_dynamo_source"):
            made[node]._dynamo_source = node._dynamo_source  # pyright: ignore[reportAttributeAccessIssue,reportPrivateUsage]
    copy = GraphModule(module, graph)
    copy.meta = dict(module.meta)
    names = vars(module).get("_param_name_to_source")
    if names is not None:
        copy._param_name_to_source = names  # pyright: ignore[reportPrivateUsage]
    return copy


@dataclass(frozen=True, slots=True, eq=False)
class CapturedNow:
    """A captured graph that can be compiled once more after TorchDynamo went on."""

    module: GraphModule
    context: TracingContext

    @contextmanager
    def compiling(self) -> Generator[tuple[GraphModule, list[Any]]]:
        """Give a copy of the graph and stand-ins for its inputs, as when it was captured."""
        module = copied(self.module)
        symbols: list[Any] = [] if self._shapes is None else list(self._shapes.backed_var_to_val)
        for symbol in symbols:
            if symbol_is_type(symbol, SymT.FLOAT):
                TensorifyState.specialize(str(symbol))  # settled when it was captured; else the analysis would restart
        try:
            with tracing(self.context):
                yield module, _stand_ins(module)
        finally:
            TensorifyState.clear()

    @property
    def _shapes(self) -> ShapeEnv | None:
        return None if self.context.fake_mode is None else self.context.fake_mode.shape_env

    @property
    def n_guards(self) -> int:
        """How many conditions on dynamic sizes the compiled graph rests on; nobody checks those that come later."""
        return 0 if self._shapes is None else len(self._shapes.guards)


def captured_now(module: GraphModule) -> CapturedNow | None:
    """Keep a graph as it is captured; None where nothing stands for an input."""
    context = TracingContext.try_get()
    if context is None or any(each is None for each in _stand_ins(module)):
        return None
    return CapturedNow(copied(module), context)


def _stand_ins(module: GraphModule) -> list[Any]:
    return [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]


def watch_skipped_frames(backend: str, tell: Callable[[Any, str, str], None]) -> None:
    """Have TorchDynamo say which frames it leaves alone that it was to compile with a backend.

    `tell` gets the options given to `torch.compile`, the function with its file and line, and the reason. It is told
    after `torch._dynamo.reset`, too, which forgets all callbacks.
    """
    if not _watchers:
        clear = callback_handler.clear

        def clear_others() -> None:
            clear()
            callback_handler.register_end_callback(_tell_of_skipped)

        callback_handler.clear = clear_others
        callback_handler.register_end_callback(_tell_of_skipped)
    _watchers[backend] = tell


_watchers: dict[str, Callable[[Any, str, str], None]] = {}
_SKIPS = ("Unsupported", "SkipFrame", "UserError", "RecompileLimitExceeded")
"""What TorchDynamo ends with where it goes on without a graph."""


def _tell_of_skipped(_what: object) -> None:
    error = sys.exc_info()[1]
    frame: Any = currentframe()
    while frame is not None and not (frame.f_code.co_name == "_compile" and "compiler_fn" in frame.f_locals):
        frame = frame.f_back
    if frame is None or frame.f_locals.get("one_graph") or type(error).__name__ not in _SKIPS:
        return  # with fullgraph=True nothing is left alone: the error is the user's to see
    compiler, code = frame.f_locals["compiler_fn"], frame.f_locals["code"]
    tell = _watchers.get(getattr(compiler, "compiler_name", ""))
    if tell is not None:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        given = getattr(compiler, "kwargs", {}).get("options")
        tell(given, f"{code.co_name} ({Path(code.co_filename).name}:{code.co_firstlineno})", reason)
