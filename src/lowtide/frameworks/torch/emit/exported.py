"""Planned inference programs as .pt2 files that run without lowtide."""

import inspect
import io
from collections import OrderedDict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter
from torch.fx.traceback import preserve_node_meta

from lowtide.core.errors import UnsupportedError, one_line
from lowtide.core.files import write_pieces
from lowtide.frameworks.torch.capture.capture_function import FunctionBinding
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.in_place import INTO, OUT_VARIANTS


def save_exported(captured: Captured, planned: GraphModule, path: Path) -> None:
    """Write the planned graph of a captured exported program to a .pt2 file, atomically.

    It keeps state, arguments, results, and loaded example inputs. Raises UnsupportedError if PyTorch cannot export it,
    WriteError if the file cannot be written.
    """
    content = io.BytesIO()
    try:
        torch.export.save(_exported(captured, planned), content)
    except Exception as error:  # PyTorch raises many kinds of errors here
        reason = f"{type(error).__name__}: {one_line(error, 200)}"
        advice = "write the plan (-o NAME.plan.json) and use lowtide.apply(plan, program)"
        raise UnsupportedError(f"PyTorch cannot export the planned program: {reason}; {advice}") from error
    write_pieces(path, [content.getbuffer()])


def _exported(captured: Captured, planned: GraphModule) -> ExportedProgram:
    binding = captured.binding
    if not isinstance(binding, FunctionBinding) or not isinstance(binding.function, nn.Module):
        raise UnsupportedError("only a captured module can be exported; write the plan instead (-o NAME.plan.json)")
    for node in planned.graph.nodes:
        if node.target in OUT_VARIANTS:  # the file must not need lowtide
            node.target, keyword = OUT_VARIANTS[node.target]
            node.kwargs = {keyword if name == INTO else name: value for name, value in node.kwargs.items()}
    planned.recompile()
    given = (captured.example_args, dict(captured.example_kwargs))
    args, kwargs = pytree.tree_map_only(torch.Tensor, _real, given)
    with torch.no_grad():
        program = torch.export.export(_Planned(binding.function, binding, planned), args, kwargs)
    aten = torch.ops.aten
    for node in program.graph.find_nodes(op="call_function", target=aten.alias.default):
        node.target = aten.detach.default  # since 2.14, `detach` is traced as `alias`, with gradients that no plan has
    program.graph_module.recompile()
    if any(map(is_fake, pytree.tree_leaves(given))):
        program.example_inputs = None
    return program


def _real(tensor: torch.Tensor) -> torch.Tensor:
    if not is_fake(tensor):
        return tensor
    real = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    return real.zero_().requires_grad_(tensor.requires_grad)


class _Planned(nn.Module):
    def __init__(self, original: nn.Module, binding: FunctionBinding, planned: GraphModule) -> None:
        super().__init__()
        # Keep all names, but not the hooks that check inputs against the original graph.
        self.__dict__ = {**original.__dict__, "_forward_pre_hooks": OrderedDict()}

        def forward(*args: Any, **kwargs: Any) -> Any:
            sources = binding.bind(args, kwargs)
            with preserve_node_meta():
                outputs: list[Any] = list(Interpreter(planned).run(*sources))
            return binding.finish(outputs, sources)

        vars(forward)["__signature__"] = inspect.signature(original.forward)  # export names the arguments by it
        self.forward = forward
