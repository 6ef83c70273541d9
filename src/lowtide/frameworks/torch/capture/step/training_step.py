"""A training step to run or capture."""

import inspect
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, cast
from weakref import ref

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from lowtide.core.errors import UsageError, named_type, one_line
from lowtide.frameworks.torch.capture.state.rehearsal import StepPython
from lowtide.frameworks.torch.capture.step.optimizer_update import parameters_of
from lowtide.frameworks.torch.capture.step.waiting_gradients import WaitingGradients
from lowtide.frameworks.training_steps import STEP_AND_BATCH


class OneThread:
    """Admits one thread at a time, reentrantly. Copies are independent."""

    def __init__(self, what: str, remedy: str) -> None:
        self._what, self._remedy = what, remedy
        self._lock = threading.RLock()
        self._thread = ""

    @contextmanager
    def enter(self) -> Generator[None]:
        """Enter, or raise UsageError if another thread is inside."""
        if not self._lock.acquire(blocking=False):
            raise UsageError(f"{self._what} is in use by thread {self._thread!r}; {self._remedy}")
        try:
            self._thread = threading.current_thread().name
            yield
        finally:
            self._lock.release()

    def __reduce__(self) -> tuple[type["OneThread"], tuple[str, str]]:
        return OneThread, (self._what, self._remedy)


class Part(NamedTuple):
    """The position of a call in its step."""

    first: bool
    last: bool
    calls: int

    @classmethod
    def of(cls, done: int, calls: int) -> "Part":
        return cls(done == 0, done == calls - 1, calls)

    @property
    def done(self) -> int:
        """Calls of the step before this one; any call between the first and the last counts as the second."""
        return 0 if self.first else self.calls - 1 if self.last else 1

    def share_of(self, loss: torch.Tensor) -> torch.Tensor:
        """Return this call's share of the step's mean loss."""
        return loss if self.calls == 1 else loss / self.calls


LossFunction = Callable[..., torch.Tensor]
GradientHook = Callable[[list[torch.Tensor]], object]
ModelHook = Callable[[nn.Module], object]


class TrainingStep:
    """One step of training: clear gradients, compute and differentiate the loss, update the parameters.

    A call runs plain PyTorch and returns the detached loss. The scalar loss is `loss_function(model, *batch)`. By
    default, it is `.loss`, `["loss"]` or the first element of `model(*batch)`, or the output itself. `before_update`
    gets the parameters with gradients, in the model's order, such as for clipping. `after_update` gets the model, such
    as to average parameters.

    With `accumulate`, that many calls make a step: gradients of the mean loss add up in `.grad`, and the last call
    updates. A `grad_scaler` scales the loss, skips updates and updates its scale; `before_update` gets unscaled
    gradients. Raises UsageError for arguments of the wrong kind.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_function: LossFunction | None,
        optimizer: Optimizer,
        *,
        before_update: GradientHook | None = None,
        after_update: ModelHook | None = None,
        accumulate: int = 1,
        grad_scaler: GradScaler | None = None,
    ) -> None:
        _check_optimizer(optimizer)
        _check_calls(accumulate)
        check_callable(loss_function=loss_function, before_update=before_update, after_update=after_update)
        self.model = model
        self.loss_function = loss_function
        self.optimizer = optimizer
        self.before_update = before_update
        self.after_update = after_update
        self.accumulate = accumulate
        self.grad_scaler = _active(grad_scaler)
        self.spells_out_fused = False
        """Whether a captured update is plain instead of fused, for compilers that fuse."""
        self.done = 0
        """Finished calls of the present step."""
        self.waiting = WaitingGradients()
        self.python = StepPython()
        self._thread = OneThread(
            "the training step", "call it from one thread at a time, or make a step with its own model for each thread"
        )
        self.owners = dict[int, ref[nn.Module]]()
        """Modules of the optimizer's parameters, by `id`."""
        self.keeps_after_update = False
        """Whether `after_update` runs as Python after the planned step."""

    def one_thread(self) -> AbstractContextManager[None]:
        """Return a context that raises UsageError while another thread runs the step."""
        return self._thread.enter()

    def traced_functions(self) -> dict[str, object]:
        """Return the functions and modules of a captured step, by label."""
        found: dict[str, object] = {
            "model": self.model,
            "loss_function": self.loss_function,
            "before_update": self.before_update,
        }
        return found if self.keeps_after_update else {**found, "after_update": self.after_update}

    def loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss with its autograd graph."""
        if self.loss_function is not None:
            return self.loss_function(self.model, *args, **kwargs)
        output: Any = self.model(*args, **kwargs)
        loss = _loss_in(output)
        if loss is None:
            raise UsageError(f"the model returns {named_type(output)} without a loss; give a loss_function")
        return loss

    def scalar_loss(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Return the loss with its autograd graph, for capture.

        Raises UsageError if it is no scalar that requires grad, or if the loss function does not accept the batch.
        """
        try:
            loss: Any = self.loss(*args, **kwargs)
        except TypeError as error:
            if self.loss_function is None or _accepts(self.loss_function, self.model, *args, **kwargs):
                raise
            batch = "**batch" if kwargs else "*batch"
            raise UsageError(
                f"{one_line(error)}; the loss function is called as loss_function(model, {batch})"
            ) from error
        if isinstance(loss, torch.Tensor) and loss.dim() == 0 and loss.requires_grad:
            return loss
        found = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else named_type(loss)
        message = "the loss of a training step must be a scalar tensor that requires grad"
        if self.loss_function is None:
            raise UsageError(
                f"{message}, and {type(self.model).__name__} gives {found}; return {STEP_AND_BATCH}, or give a model "
                "that returns its loss"
            )
        raise UsageError(f"{message}, and the loss function gives {found}")

    def parameters(self) -> list[torch.Tensor]:
        """Return the optimizer's parameters, in the order of its groups."""
        return parameters_of(self.optimizer)

    def model_order(self) -> list[int]:
        """Return indices into `parameters` in model order, for clipping."""
        model = cast("object", self.model)
        own = model.parameters() if isinstance(model, nn.Module) else ()
        places = {id(each): place for place, each in enumerate(own)}
        order = [places.get(id(each), len(places)) for each in self.parameters()]
        return sorted(range(len(order)), key=order.__getitem__)

    @property
    def part(self) -> Part:
        """The part that the next call runs."""
        return Part.of(self.done, self.accumulate)

    def advance(self) -> None:
        """Count a finished call."""
        self.done = (self.done + 1) % self.accumulate

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        part = self.part
        if part.first:
            self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(*args, **kwargs)
        share = part.share_of(loss)
        torch.autograd.backward(share if self.grad_scaler is None else self.grad_scaler.scale(share))
        if part.last:
            self._update()
        self.advance()
        return loss.detach()

    def _update(self) -> None:
        scaler = self.grad_scaler
        if self.before_update is not None:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            parameters = self.parameters()
            self.before_update([parameters[place] for place in self.model_order()])
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        self.run_after_update()

    def run_after_update(self) -> None:
        """Call `after_update` on the model, if there is one."""
        if self.after_update is not None and not (self.keeps_after_update and self.python.is_repeated):
            with torch.no_grad():
                self.after_update(self.model)


def _accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _loss_in(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        return cast("Mapping[str, Any]", output).get("loss")
    loss: Any = getattr(output, "loss", None)
    if loss is None and isinstance(output, tuple | list):
        return next(iter(cast("tuple[Any, ...]", output)), None)
    return loss


def _check_optimizer(given: object) -> None:
    if not isinstance(given, Optimizer):
        kind = type(given).__name__
        raise UsageError(f"pass model, loss function and optimizer, in this order; the last is a {kind}")


def _check_calls(accumulate: object) -> None:
    if not isinstance(accumulate, int) or accumulate < 1:
        raise UsageError(f"accumulate is {accumulate!r}; give the number of calls in a step, at least 1")


def _active(scaler: object) -> GradScaler | None:
    if not isinstance(scaler, GradScaler | None):
        raise UsageError(f"grad_scaler is {named_type(scaler)}; give a torch.amp.GradScaler, or leave it out")
    return scaler if scaler is not None and scaler.is_enabled() else None


def check_callable(**given: object) -> None:
    for name, value in given.items():
        if value is not None and not callable(value):
            raise UsageError(f"{name} is {named_type(value)}; give a function, or leave it out")
