"""Apply a plan to a captured PyTorch program."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import FingerprintError, LowtideError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.emit.host_updates import finish_updates
from lowtide.frameworks.torch.emit.state_copies import finish_copies
from lowtide.frameworks.torch.internals.runtime import without_autocast
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading


class Applied:
    """A program that runs in plan order and frees each tensor at its last use.

    Call it like the original. Results are bit-equal. Autograd does not record calls; they include a captured backward
    pass.
    """

    def __init__(
        self,
        captured: Captured,
        module: GraphModule,
        run: Callable[[list[Any]], Any] | None = None,
        planned: tuple[Graph, Plan] | None = None,
        before_first_call: Callable[[], None] | None = None,
    ) -> None:
        """Take a planned module, or a compiled program `run` instead."""
        self.captured = captured
        self.module = module
        self.planned = planned
        """Graph and plan, if they predict the memory."""
        self._run = module.forward if run is None else run
        self._before_first_call = before_first_call
        self._donated = [i for i, (_, lifetime) in enumerate(captured.inputs) if lifetime is Lifetime.DONATED]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program. Raises UsageError for other argument forms, or while another thread runs the step."""
        if self._before_first_call is not None:
            self._before_first_call()
            self._before_first_call = None
        with self.captured.binding.one_thread():
            return self._call(args, kwargs)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        binding = self.captured.binding
        sources = binding.bind(args, kwargs)
        inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in sources]
        for index in self._donated:
            sources[index] = None  # leave the only reference to the program
        states = [source for place in self.captured.on_host if isinstance(source := sources[place], torch.Tensor)]
        try:
            with torch.set_grad_enabled(self.captured.with_backward), without_autocast():
                outputs = list(self._run(inputs))
        except BaseException as error:
            finish_copies(states)
            finish_updates(sources)
            if not isinstance(error, LowtideError):
                binding.note_failure(error, counts_changes=self.planned is not None)
            raise
        finish_copies(states)
        with torch.no_grad():
            return binding.finish(outputs, sources)


def apply_plan(
    plan: Plan,
    reading: Reading,
    graph: Graph,
    *,
    verified: bool = False,
    before_first_call: Callable[[], None] | None = None,
) -> Applied:
    """Return a callable that follows a plan for `graph`. Raises the errors of `check_plan`."""
    captured = reading.captured
    check_plan(plan, reading, graph, verified=verified)
    module = emit(captured.graph_module, reading.lowered, plan, boxed=True)
    return Applied(captured, module, planned=(graph, plan), before_first_call=before_first_call)


def check_plan(plan: Plan, reading: Reading, graph: Graph, *, verified: bool) -> None:
    """Raise FingerprintError for a plan of another graph or host, VerificationError for an incorrect plan."""
    if plan.graph_fingerprint != graph.fingerprint:
        copies = bool((plan.kinds == StepKind.COPY_OUT).any())
        advice = "give the host of the plan, or make a new plan" if copies else "make a new plan"
        raise FingerprintError(f"the plan is for another graph than that of '{reading.captured.name}'; {advice}")
    if not verified:
        verify(graph, plan, check_capacity=False)
