"""Lower a training step to kernels of the present device, without code generation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import LowtideError, UnsupportedError, one_line
from lowtide.engine.costs import Device
from lowtide.engine.plan import Plan
from lowtide.engine.planning.plan_file import result_with
from lowtide.engine.planning.program import FormName
from lowtide.engine.planning.settings import PlanSettings
from lowtide.frameworks.torch.absent_device.build import Program, loss_of
from lowtide.frameworks.torch.absent_device.messages import LoweredPlan, PricedKernels
from lowtide.frameworks.torch.compile.fusion.fused_peaks import FusedPeaks, StopAfterScheduling
from lowtide.frameworks.torch.compile.fusion.settings import BOTH_PASSES, NOT_CACHED, schedule_only, settings
from lowtide.frameworks.torch.compile.kernels.chunk_kernels import RecordKernels
from lowtide.frameworks.torch.compile.kernels.kernel_partitioner import (
    ChunkedForm,
    KernelPartitioner,
    PlannedKernels,
    chunked_forms,
    kernel_program,
    kernels_or_none,
)
from lowtide.frameworks.torch.compile.kernels.kernel_program import KernelProgram, join_passes
from lowtide.frameworks.torch.compile.kernels.pass_recorders import RecordPasses, forward_nodes_of, held_bytes
from lowtide.frameworks.torch.compile.partitioner import Partitioner
from lowtide.frameworks.torch.compile.step_passes import GivenGraph
from lowtide.frameworks.torch.internals.aot_autograd import patched_autograd
from lowtide.frameworks.torch.internals.compiling import captured_whole
from lowtide.frameworks.torch.internals.dynamo import CaptureSnapshot, copied, snapshot_capture
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode
from lowtide.frameworks.torch.internals.inductor import compile_until_scheduled
from lowtide.frameworks.torch.internals.joint_trace import JointTrace
from lowtide.frameworks.torch.planning.options import Options
from lowtide.frameworks.torch.planning.programs import registry_state, restore_registry
from lowtide.frameworks.torch.reading.costs import work_of
from lowtide.frameworks.torch.reading.read import Reading

_NO_BACKWARD = "the program has no backward pass, or one with inputs of its own; return a loss"


class LoweredStep:
    """A program's two passes as kernels of the present device."""

    def __init__(self, program: Program, mode: FakeMode, name: str, device: Device, persistent_bytes: int = 0) -> None:
        """Capture and lower a program; `persistent_bytes` includes optimizer state.

        Raises UnsupportedError unless it is a training step in one graph.
        """
        self._snapshot = _captured(program, mode)
        self._options = Options(budget=0)
        self._name = name
        self._device = device
        self._persistent_bytes = persistent_bytes
        self._trace = JointTrace()
        with self._snapshot.compiling() as (module, inputs), torch.enable_grad():
            self.unplanned, self.unplanned_peak = self._unplanned(module, inputs)
            """The kernels in Inductor's order without a plan."""
        with self._snapshot.compiling() as (module, inputs), torch.enable_grad():
            kernels = kernel_program(self._given(module, inputs), self._options, name)
        if kernels is None:
            raise UnsupportedError(_NO_BACKWARD)
        self._unmodified = kernels
        self._forms: dict[FormName, tuple[KernelProgram, ChunkedForm | None]] = {"unmodified": (kernels, None)}

    @property
    def kernels(self) -> PricedKernels:
        return self._priced(self._unmodified)

    def in_chunks(self, form: FormName, allowed: int) -> PricedKernels | None:
        """Return the kernels of a form for a budget in bytes."""
        chunked = {each.name: each for each in chunked_forms(self._unmodified, allowed)}.get(form)
        if chunked is None:
            return None
        with self._snapshot.compiling() as (module, inputs), torch.enable_grad():
            program = kernels_or_none(self._given(module, inputs), self._options, self._name, chunked)
        if program is None:
            return None
        self._forms[form] = (program, chunked)
        return self._priced(program)

    def _given(self, module: GraphModule, inputs: Sequence[Any]) -> GivenGraph:
        return GivenGraph(module, inputs, trace=self._trace)

    def _priced(self, program: KernelProgram) -> PricedKernels:
        return PricedKernels(graph=program.graph, seconds=program.seconds_on(self._device))

    def _unplanned(self, module: GraphModule, inputs: Sequence[Any]) -> tuple[KernelProgram, int]:
        peaks = FusedPeaks()
        recorder = RecordPasses(peaks)
        as_it_is = replace(self._options, budget=None, allow=())
        given = self._given(module, inputs)
        planned = schedule_only(given, as_it_is, peaks, recorder, Partitioner(as_it_is, name=self._name))
        if planned is None or len(recorder.passes) != len(planned.kernel_peaks):
            raise UnsupportedError(_NO_BACKWARD)
        forward, backward = recorder.passes
        held = held_bytes(planned)
        held = replace(held, persistent=max(held.persistent, self._persistent_bytes))
        program = join_passes(planned.name, forward, backward, held, forward_nodes_of(planned.source))
        return program, max(planned.kernel_peaks)

    def lowered(self, plan: Plan, allowed: int, form: FormName = "unmodified") -> LoweredPlan:
        """Lower a form with a plan; `allowed` limits CPU functions that merge kernels."""
        program, chunked = self._forms[form]
        given = PlanSettings(budget=allowed, transient=True, techniques=frozenset({"share", "recompute"}))
        planned = PlannedKernels(program, result_with(program.graph, plan, given, "given", None))
        options = replace(self._options, budget=allowed + sum(program.graph.persistent_bytes().values()))
        peaks = FusedPeaks(allowed, silent=True)
        end = StopAfterScheduling()
        partitioner = KernelPartitioner(options, name=self._name, planned=planned, in_chunks=chunked)
        changes, record = settings(options, peaks, partitioner), RecordKernels()
        passes = [*changes["reorder_for_compute_comm_overlap_passes"], record, end]
        before = registry_state()
        try:
            with (
                self._snapshot.compiling() as (module, inputs),
                torch.enable_grad(),
                patched_autograd({**NOT_CACHED, **BOTH_PASSES}),
            ):
                configured = {
                    **changes,
                    "reorder_for_compute_comm_overlap_passes": passes,
                    "fx_graph_cache": False,
                }
                compile_until_scheduled(copied(module), inputs, configured, end.take_strides, trace=self._trace)
        finally:
            restore_registry(before)
        seconds = sum(self._device.seconds(*each) for each in record.work)
        return LoweredPlan(peak_bytes=max(peaks.planned[0].kernel_peaks), seconds=seconds)


def eager_seconds(reading: Reading, device: Device) -> float:
    return sum(device.seconds(*each) for op in reading.lowered.ops for node in op.kernels for each in work_of(node))


class _CapturedError(Exception):
    """Raised instead of running a captured program."""


def _captured(program: Program, mode: FakeMode) -> CaptureSnapshot:
    function, args, kwargs = loss_of(program)
    found: list[CaptureSnapshot] = []

    def keep(module: GraphModule, _inputs: Sequence[Any]) -> Any:
        snapshot = snapshot_capture(module)
        if snapshot is not None:
            found.append(snapshot)
        return _stop

    run = captured_whole(function, keep)
    try:
        with mode, torch.enable_grad():
            run(*args, **kwargs)
    except _CapturedError:
        pass
    except LowtideError:
        raise
    except Exception as error:
        raise UnsupportedError(
            f"the program cannot be captured as one graph: {type(error).__name__}: {one_line(error, 400)}"
        ) from error
    if not found:
        raise UnsupportedError("the program computes nothing that torch.compile captures; return a loss")
    return found[0]


def _stop(*_: Any) -> None:
    raise _CapturedError
