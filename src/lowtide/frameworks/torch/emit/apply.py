"""Applying a plan to a captured PyTorch program."""

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from lowtide.core.errors import FingerprintError
from lowtide.engine.graph import Graph, Lifetime
from lowtide.engine.plan import Plan, StepKind, verify
from lowtide.frameworks.torch.emit.emit import emit
from lowtide.frameworks.torch.internals.runtime import without_autocast
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.reading.read import Reading


class Applied:
    """A PyTorch program that runs in the order of a plan and frees every tensor at its last use.

    Call it as the original. Its results equal the original's bit for bit: it runs the same kernels on the same
    values, random draws in their order. Autograd does not record it; a captured backward pass is part of it.
    """

    def __init__(
        self,
        captured: Captured,
        module: GraphModule,
        run: Callable[[list[Any]], Any] | None = None,
        planned: tuple[Graph, Plan] | None = None,
        before_first_call: Callable[[], None] | None = None,
    ) -> None:
        """Run a planned module, or instead of it `run`, a compiled program that takes the same inputs.

        `before_first_call` may refuse to run it.
        """
        self.captured = captured
        self.module = module
        self.planned = planned
        """The graph and the plan that is followed, where they say what the program takes."""
        self._run = module.forward if run is None else run
        self._before_first_call = before_first_call
        self._donated = [i for i, (_, lifetime) in enumerate(captured.inputs) if lifetime is Lifetime.DONATED]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; raises UsageError where the arguments do not have the captured form."""
        if self._before_first_call is not None:
            self._before_first_call()
            self._before_first_call = None
        binding = self.captured.binding
        sources = binding.bind(args, kwargs)
        # nothing requires grad, so autograd records nothing
        inputs = [value.detach() if isinstance(value, torch.Tensor) else value for value in sources]
        for index in self._donated:
            sources[index] = None  # the program is the last to hold it
        with torch.set_grad_enabled(self.captured.with_backward), without_autocast():
            outputs = list(self._run(inputs))
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
    """Return a program that was read as a callable that follows a plan for `graph`, its graph with a host or without.

    `before_first_call` may refuse to run it. The errors are those of `check_plan`.
    """
    captured = reading.captured
    check_plan(plan, reading, graph, verified=verified)
    module = emit(captured.graph_module, reading.lowered, plan, boxed=True)
    return Applied(captured, module, planned=(graph, plan), before_first_call=before_first_call)


def check_plan(plan: Plan, reading: Reading, graph: Graph, *, verified: bool) -> None:
    """Check that a plan is for `graph`, and right, unless the caller says that it was `verified` for it already.

    Raises FingerprintError for a plan of another graph or host, VerificationError for one that is wrong.
    """
    if plan.graph_fingerprint != graph.fingerprint:
        copies = bool((plan.kinds == StepKind.COPY_OUT).any())
        advice = "name the host that it was made with, or make a new plan" if copies else "make a new plan for it"
        raise FingerprintError(
            f"the plan was made for another graph than '{reading.captured.name}' gives now; {advice}"
        )
    if not verified:
        verify(graph, plan, check_capacity=False)
