"""PyTorch's own modules compiled in place: TorchDynamo captures them as it does those given to `torch.compile`.

`nn.Sequential(...).compile()` compiles nothing: TorchDynamo skips the frames of PyTorch's own files, which all of them
are. For `torch.compile(module)` it adds one that it looks at; so does this, for `module.compile()`.
"""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

from types import MethodType
from typing import Any

from torch import nn
from torch._dynamo import external_utils, trace_rules
from torch._dynamo.eval_frame import OptimizeContext, innermost_backend

_backends: set[str] = set()


def capture_own_modules(backend: str) -> None:
    """Have modules of PyTorch's own classes captured that are compiled in place with a backend."""
    if not _backends:
        compiled = OptimizeContext.__call__

        def compiled_whole(self: OptimizeContext, fn: Any) -> Any:
            return compiled(self, external_utils.wrap_inline(fn) if _is_missed(self, fn) else fn)

        OptimizeContext.__call__ = compiled_whole
    _backends.add(backend)


def _is_missed(context: OptimizeContext, function: Any) -> bool:
    """Tell whether a function calls a module of whose frames TorchDynamo would look at none."""
    if not (isinstance(function, MethodType) and function.__func__ is nn.Module._call_impl):
        return False
    callback: Any = context.callback
    is_ours = getattr(innermost_backend(callback), "compiler_name", None) in _backends
    return is_ours and trace_rules.check(function.__self__.forward)
