"""Sources of ops: the user's lines and modules that run while tracing.

PyTorch copies its "current meta" to new nodes: here, an object that reads the Python stack.
"""
# pyright: reportPrivateImportUsage=false, reportPrivateUsage=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnnecessaryComparison=false

import linecache
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.fx.traceback as node_meta
from torch import nn
from torch.fx import Graph
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

import lowtide

_PYTORCH = str(Path(torch.__file__).parent)
_LOWTIDE = str(Path(lowtide.__file__).parent)
_DISPATCH = ("__torch_dispatch__", "__torch_function__")
_FROM = "custom"
"""A field that PyTorch copies unchanged."""


@contextmanager
def recording_sources() -> Generator[None]:
    running = _Running()
    hooks = [
        register_module_forward_pre_hook(running.enter),
        register_module_forward_hook(lambda *_: running.leave(), always_call=True),
    ]
    try:
        with node_meta.preserve_node_meta():
            before = node_meta.current_meta
            node_meta.current_meta = _Here(running)
            try:
                yield
            finally:
                node_meta.current_meta = before
    finally:
        for hook in hooks:
            hook.remove()


def share_sources(graph: Graph) -> None:
    """Copy forward ops' sources to their backward ops, by autograd's sequence numbers. O(nodes)."""
    forward: dict[int, dict[str, Any]] = {}
    for node in graph.nodes:
        number, in_backward = (node.meta.pop(_FROM, None) or {}).get("autograd", (None, False))
        if number is None:
            continue
        if not in_backward:
            forward.setdefault(number, node.meta)
            continue
        found = forward.get(number, {})
        node.meta["partitioner_tag"] = "is_backward"
        for name, source in (("stack_trace", "stack_trace"), ("fwd_nn_module_stack", "nn_module_stack")):
            if source in found:
                node.meta[name] = found[source]


class _Running:
    def __init__(self) -> None:
        self.stack: list[tuple[str, type]] = []
        self._names: dict[int, str] = {}

    def enter(self, module: nn.Module, _: object) -> None:
        if not self.stack:
            self._names = {id(inner): name for name, inner in module.named_modules()}
        self.stack.append((self._names.get(id(module), ""), type(module)))

    def leave(self) -> None:
        if self.stack:
            self.stack.pop()


class _Here(dict[str, Any]):
    def __init__(self, running: _Running) -> None:
        super().__init__()
        self._running = running

    def get(self, key: str, default: Any = None) -> Any:
        if key == "stack_trace":
            return None if torch._C._current_autograd_node() is not None else _stack_trace(sys._getframe(1))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        return key == _FROM or (key == "nn_module_stack" and bool(self._running.stack)) or super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        if key == "nn_module_stack":
            return {str(place): entry for place, entry in enumerate(self._running.stack)}
        if key == _FROM:
            node = torch._C._current_autograd_node()
            number = torch.autograd._get_sequence_nr() - 1 if node is None else node._sequence_nr()
            return {"autograd": (number, node is not None)}
        return super().__getitem__(key)


def _stack_trace(frame: FrameType | None) -> str | None:
    lines: list[str] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_LOWTIDE):
            if code.co_name not in _DISPATCH and not code.co_filename.startswith(__file__):
                break
        elif not code.co_filename.startswith((_PYTORCH, "<")):
            text = linecache.getline(code.co_filename, frame.f_lineno).strip()
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}\n    {text}\n')
        frame = frame.f_back
    return "".join(reversed(lines)) or None
