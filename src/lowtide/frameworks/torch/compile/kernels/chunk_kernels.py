"""Inductor's kernels for ops of chunks between two products."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.frameworks.torch.compile.fusion.fused_peaks import StopAfterScheduling
from lowtide.frameworks.torch.compile.fusion.order import CpuFunctions
from lowtide.frameworks.torch.compile.fusion.settings import NOT_CACHED
from lowtide.frameworks.torch.compile.kernels.recorded_pass import work_of_kernels
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.compiling import one_at_a_time
from lowtide.frameworks.torch.internals.dynamo import copied
from lowtide.frameworks.torch.internals.fake_tensors import new_fake_mode, tracing_in
from lowtide.frameworks.torch.internals.inductor import SchedulerPass, compile_fx, compile_until_scheduled
from lowtide.frameworks.torch.internals.kernels import KernelNode
from lowtide.frameworks.torch.internals.nodes import outputs_of, value_of
from lowtide.frameworks.torch.internals.tensors import bytes_of
from lowtide.frameworks.torch.reading.outlined import Work, register_program

_ITS_OWN = {
    "custom_partitioner_fn": None,
    "reorder_for_peak_memory": False,
    "_pre_fusion_custom_pass": None,
    "fx_graph_cache": False,  # a cached graph has no kernels to count
    "allow_buffer_reuse": False,  # storage kept for a later kernel would count as alive
}


_Form = tuple[tuple[int, ...], tuple[int, ...], torch.dtype, torch.device]
_known: dict[tuple[str, tuple[_Form, ...]], str] = {}


def fuse_with_inductor(module: GraphModule) -> str:
    """Register a program of element-wise ops and sums, compiled at its first call; return its key."""
    forms = tuple(_form_of(value_of(node)) for node in module.graph.find_nodes(op="placeholder"))
    identity = (module.code, forms)
    if identity not in _known:
        compiler = _ChunkCompiler(module, forms)
        peak, work = compiler.kernels()
        returned = sum(bytes_of(value_of(node)) for node in outputs_of(module))
        scratch = max(0, peak - returned)
        _known[identity] = register_program(module, scratch_bytes=scratch, work=work, run=compiler.run)
    return _known[identity]


def _form_of(value: torch.Tensor) -> _Form:
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device


class _ChunkCompiler:
    def __init__(self, module: GraphModule, forms: Sequence[_Form]) -> None:
        self._module = copied(module)
        self._forms = forms
        self._compiled = cache(one_at_a_time(self._compile))

    def kernels(self) -> tuple[int, Sequence[Work]]:
        """Return the kernels' peak with results, without operands, and their work."""
        record = RecordKernels()
        end = StopAfterScheduling()

        def schedule(inputs: Sequence[torch.Tensor]) -> None:
            compile_until_scheduled(copied(self._module), inputs, _with_passes(record, end), end.take_strides)

        self._with_inputs(schedule)
        return record.peak, record.work

    def run(self, *operands: torch.Tensor) -> Sequence[torch.Tensor]:
        return self._compiled()(*operands)

    def _compile(self) -> Callable[..., Sequence[torch.Tensor]]:
        return self._with_inputs(lambda inputs: compile_fx(copied(self._module), inputs, _with_passes()))

    def _with_inputs(self, function: Callable[[Sequence[torch.Tensor]], Any]) -> Any:
        mode = new_fake_mode()
        with mode:
            inputs = [
                torch.empty_strided(shape, strides, dtype=dtype, device=device)
                for shape, strides, dtype, device in self._forms
            ]
        with torch.no_grad(), tracing_in(mode), patched_autograd(NOT_CACHED):
            return function(inputs)


def _with_passes(*passes: Any) -> dict[str, Any]:
    return {
        **_ITS_OWN,
        "reorder_for_compute_comm_overlap": bool(passes),
        "reorder_for_compute_comm_overlap_passes": list(passes),
    }


class RecordKernels(SchedulerPass):
    """A scheduler pass that records the peak and work of kernels."""

    def __init__(self) -> None:
        self.peak = 0
        self.work: list[Work] = []

    def __call__(self, nodes: Sequence[KernelNode]) -> list[KernelNode]:
        self.peak = max(self.peak, CpuFunctions.of(nodes, None).peak_bytes)
        self.work += work_of_kernels(nodes)
        return list(nodes)
