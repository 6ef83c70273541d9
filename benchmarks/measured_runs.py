"""One training step, compiled in different ways and run for real: its peak, its bits, its work."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config as functorch_config
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch.fx import GraphModule
from work_done import Work, recomputed_work, repeated_work, work_of

from lowtide.engine.planning.result import Result
from lowtide.frameworks.torch.compile.eager import run_boxed
from lowtide.frameworks.torch.measure.kept_state import KeptState
from lowtide.frameworks.torch.planning.programs import forget_programs, planned_programs
from lowtide.torch import MeasuredStep, measure

Backend = Callable[..., Any] | str | None


@dataclass(frozen=True)
class Trained:
    """What one step took and computed."""

    measured: MeasuredStep
    digest: str
    """Digest of the loss, the gradients and the buffers."""
    recomputed: Work | None = None
    """What runs again; None where the graphs are not known."""

    @property
    def peak_bytes(self) -> int:
        """The measured peak."""
        return self.measured.measured_peak_bytes

    @property
    def again(self) -> Work:
        """What runs again, for runs whose graphs are known."""
        assert self.recomputed is not None
        return self.recomputed

    @property
    def result(self) -> Result:
        """What planning said; only for what lowtide planned."""
        (result,) = self.measured.planned
        return result


class Training:
    """A model and a batch, trained by one step again and again from the same state."""

    def __init__(self, module: nn.Module, batch: tuple[torch.Tensor, ...]) -> None:
        self.module = module.train()
        self.batch = batch
        self._kept = KeptState([*module.parameters(), *module.buffers()])
        self.unmodified_work: Work | None = None

    def plain(self) -> Trained:
        """Run without any compiler."""
        return self._run(self.module)

    def with_torch(self, activation_budget: float | None) -> Trained:
        """Run torch's own partition, or with None everything saved; op by op, freeing every tensor at its last use."""
        seen: list[GraphModule] = []

        def compiler(module: GraphModule, inputs: Any) -> Any:
            seen.append(module)
            return run_boxed(module, inputs)

        backend = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compiler,
            partition_fn=default_partition if activation_budget is None else min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )
        with functorch_config.patch(activation_memory_budget=1.0 if activation_budget is None else activation_budget):
            trained = self._run(self._compiled(backend))
        forward, backward = seen
        if activation_budget is None:
            self.unmodified_work = work_of(seen)
        return Trained(trained.measured, trained.digest, recomputed_work(forward, backward))

    def with_backend(self, backend: str) -> Trained:
        """Run what another backend makes of it."""
        return self._run(self._compiled(backend))

    def with_lowtide(self, **options: Any) -> Trained:
        """Run as lowtide plans it."""
        forget_programs()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="lowtide: .* does not fit")  # the table says so
            trained = self._run(self._compiled("lowtide", options={"compiler": "eager", **options}))
        (program,) = planned_programs()
        return Trained(trained.measured, trained.digest, repeated_work(program))

    def inference_peaks(self) -> tuple[int, int]:
        """Return the measured peak of a forward pass without gradients, as PyTorch orders it and as lowtide does."""
        self.module.eval()
        peaks: list[int] = []
        for means in ((), ("reorder", "share")):
            call = self._compiled("lowtide", options={"compiler": "eager", "allow": means})
            with torch.no_grad():
                peaks.append(measure(call, *self.batch, timed_calls=1).measured_peak_bytes)
        self.module.train()
        return peaks[0], peaks[1]

    def _compiled(self, backend: Backend, **more: Any) -> Any:
        torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
        return torch.compile(self.module, backend=backend, dynamic=False, **more)

    def _run(self, call: Callable[..., torch.Tensor]) -> Trained:
        self._kept.put_back()
        loss = call(*self.batch)
        loss.backward()
        digest = digest_of([loss, *(tensor.grad for tensor in self.module.parameters()), *self.module.buffers()])
        del loss
        self._kept.put_back()

        def step(*batch: torch.Tensor) -> None:
            call(*batch).backward()

        return Trained(measure(step, *self.batch, state=[self.module], timed_calls=1), digest)


def digest_of(tensors: list[torch.Tensor | None]) -> str:
    """Digest the bits of tensors."""
    digest = hashlib.blake2b()
    for tensor in tensors:
        if tensor is not None:
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
