"""Both passes of a program compiled by Inductor, the forward pass last."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule

from lowtide.frameworks.torch.internals.boxed import marked_boxed
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.hints import is_symbolic

Strides = Sequence[tuple[int, ...] | None]
Compiled = Callable[[list[Any]], Any]
CompilePass = Callable[..., Any]


class EndsScheduled(Protocol):
    """A pass over kernels that ends a compilation, while it is told to, once they are fused and ordered."""

    ends: bool

    def take_strides(self) -> Strides | None:
        """Return, once, how the results of a graph lie whose compilation was ended; None where none was."""
        ...


def is_only_scheduled(compile_pass: Callable[[], Any], take_strides: Callable[[], Strides | None]) -> bool:
    """Compile a pass that a pass over its kernels ends; False where none did.

    Whoever compiles the other pass finds how the results of this one lie, as if it had been compiled.
    """
    try:
        compile_pass()
    except Exception:
        strides = take_strides()
        if strides is None:
            raise
    else:
        return False
    context = TracingContext.try_get()
    if context is not None and context.output_strides is not None:
        context.output_strides.extend(strides)
    return True


@dataclass
class ForwardLast:
    """Compiles the forward pass as far as its kernels are known, then the backward pass, then the code of the former.

    So where the kernels of the backward pass end the compilation, no code was written. That costs lowering the forward
    pass twice.
    """

    compile_pass: CompilePass
    end: EndsScheduled
    _waiting: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])

    def compile(self, graph: GraphModule, given: Sequence[Any], **others: Any) -> Any:
        """Compile the next pass; takes what Inductor gives to what compiles a pass."""
        if others.get("is_backward"):
            compiled = self.compile_pass(graph, given, **others)
            while self._waiting:
                self._waiting.pop()()
            return compiled
        # recordings are made in the order of the passes; other sizes have other strides
        is_fixed = all(isinstance(each, torch.Tensor) and not is_symbolic(each) for each in given)
        if others.get("is_inference") or others.get("cudagraphs") or not is_fixed:
            return self.compile_pass(graph, given, **others)
        kept = copied(graph)
        made: list[Any] = []
        self.end.ends = True
        try:
            ended = is_only_scheduled(
                lambda: made.append(self.compile_pass(graph, given, **others)), self.end.take_strides
            )
        finally:
            self.end.ends = False
        if not ended:
            return made[0]
        self._waiting.append(lambda: made.append(self.compile_pass(kept, given, **others)))
        return marked_boxed(lambda inputs: made[0](inputs))
