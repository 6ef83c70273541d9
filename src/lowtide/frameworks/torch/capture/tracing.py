"""Trace a flat function of tensors into an aten graph."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from traceback import extract_tb, walk_tb
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule
from torch.overrides import TorchFunctionMode

import lowtide
from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.capture.state.names import calling_line
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.compiling import TRACING
from lowtide.frameworks.torch.internals.fake_tensors import (
    DEPENDS_ON_VALUES,
    fake_mode_of,
    faked,
    forgetting_scalars,
    trace_on_fakes,
)
from lowtide.frameworks.torch.internals.host_memory import home_of
from lowtide.frameworks.torch.internals.nodes import storages_of, value_of
from lowtide.frameworks.torch.internals.operators import define_operator, op_name
from lowtide.frameworks.torch.internals.runtime import (
    kept_random_state,
    random_state_functions,
)
from lowtide.frameworks.torch.reading.effects import overwritten_storages
from lowtide.frameworks.torch.rewrites.run import run_rewrites
from lowtide.frameworks.torch.rewrites.table import TRACED

_PYTORCH, _LOWTIDE = (str(Path(str(package.__file__)).parent) for package in (torch, lowtide))


def place_of(error: BaseException) -> str:
    """Return the module and line of an error, " in blocks.3.mlp.act at model.py:41", as far as known."""
    path, line = _module_of(error), _line_of(error)
    return f"{path and f' in {path}'}{line and f' at {line}'}"


def _module_of(error: BaseException) -> str:
    running = [frame.f_locals.get("self") for frame, _ in walk_tb(error.__traceback__)]
    modules: list[Any] = [each for each in running if isinstance(each, nn.Module)]
    names = (name for outer in modules for name, inner in outer.named_modules() if inner is modules[-1])
    return next(names, "")


def _line_of(error: BaseException) -> str:
    frames = [
        frame for frame in extract_tb(error.__traceback__) if not frame.filename.startswith((_PYTORCH, _LOWTIDE, "<"))
    ]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _fake_state() -> torch.Tensor:
    return torch.empty(torch.default_generator.get_state().shape, dtype=torch.uint8)


def _set_state(state: torch.Tensor) -> None:
    torch.default_generator.set_state(state)


def _fake_set(state: torch.Tensor) -> None:
    """Do nothing: a fake state has no values."""


GET_STATE = define_operator(
    "get_rng_state() -> Tensor",
    torch.default_generator.get_state,
    _fake_state,
    tags=(torch.Tag.nondeterministic_seeded,),
)
SET_STATE = define_operator("set_rng_state(Tensor(a!) state) -> ()", _set_state, _fake_set)
"""Declares a mutation, so that it is never dropped or moved."""


FlatFunction = Callable[[list[Any]], list[Any]]


class FakeInputs:
    """Fake copies of tensors in one fake mode, and symbols for scalars."""

    def __init__(self, tensors: Sequence[torch.Tensor], scalars: Sequence[torch.SymFloat] = ()) -> None:
        self.scalars = list(scalars)
        self.mode = fake_mode_of(tensors)
        self.tensors = [self._at_home(tensor) for tensor in tensors]

    def _at_home(self, tensor: torch.Tensor) -> torch.Tensor:
        home = home_of(tensor)
        if home == tensor.device:
            return faked(self.mode, tensor)
        with self.mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=home)

    def extended_by(
        self, forms: Sequence[torch.Tensor], *, before: int, scalars: Sequence[torch.SymFloat] = ()
    ) -> "FakeInputs":
        """Return these inputs with scalars, and fake tensors like `forms` inserted at `before`."""
        more = [self.empty(form) for form in forms]
        return FakeInputs([*self.tensors[:before], *more, *self.tensors[before:]], scalars)

    @contextmanager
    def rehearsal(self) -> Generator[None]:
        with quiet_tracing(), forgetting_scalars(self.mode):
            yield

    def empty(self, like: torch.Tensor) -> torch.Tensor:
        with self.mode:
            return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def dry_run(function: FlatFunction, inputs: FakeInputs) -> list[Any]:
    with inputs.rehearsal():
        return function([inputs.empty(tensor) for tensor in inputs.tensors])


def trace(function: FlatFunction, inputs: FakeInputs, rewrite: Callable[[Graph], None] | None = None) -> GraphModule:
    """Trace a flat function into an aten graph with one placeholder per input, in order.

    In-place ops stay in place. `rewrite` runs before all other rewrites. Raises UnsupportedError for control flow on
    values, captured tensors that require grad, and writes into the program's one-element tensors.
    """
    with quiet_tracing():
        traced = trace_on_fakes(function, [*inputs.tensors, *inputs.scalars])
    for node in traced.graph.find_nodes(op="get_attr"):
        value = getattr(traced, str(node.target), None)
        if isinstance(value, torch.Tensor) and value.requires_grad:
            shape = tuple(value.shape)
            raise UnsupportedError(
                f"a closed-over tensor of shape {shape} requires grad; make it an argument or parameter"
            )
    _remove_without_results(traced.graph)
    if rewrite is not None:
        rewrite(traced.graph)
    traced = run_rewrites(traced, TRACED)
    _refuse_written_scalars(traced)
    return traced


def _remove_without_results(graph: Graph) -> None:
    """Remove ranges of the profiler, whose ops a plan separates, and reads of known numbers."""
    for node in reversed(graph.nodes):
        name = op_name(node.target)
        is_known = name == "_local_scalar_dense" and "val" not in node.meta and not node.users
        if is_known or name.startswith("_record_function_"):
            graph.erase_node(node)


def _refuse_written_scalars(module: GraphModule) -> None:
    """Refuse writes into one-element constants: PyTorch applied them while tracing."""
    held = [node for node in module.graph.find_nodes(op="get_attr") if isinstance(value_of(node), torch.Tensor)]
    scalars = storages_of(*(node for node in held if value_of(node).numel() == 1))
    for node in module.graph.nodes if scalars else ():
        if scalars & overwritten_storages(node):
            raise UnsupportedError(
                f"op '{node.name}' writes into a one-element tensor that is neither parameter, buffer nor argument; "
                "make it a buffer of the module or pass it as an argument"
            )


class _RefuseCastsInKernels(TorchFunctionMode):
    """Refuse functions under autocast whose kernels call ops that autocast casts in eager PyTorch only."""

    _NAMES = frozenset({"affine_grid", "affine_grid_generator", "bilinear", "linalg_pinv", "pinverse"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self._NAMES and any(map(_is_cast, pytree.tensors_in((args, kwargs)))):
            raise UnsupportedError(
                f"{name}{calling_line()} gives other numbers under autocast when it is traced; call it with autocast "
                "disabled"
            )
        return func(*args, **(kwargs or {}))


def _is_cast(tensor: torch.Tensor) -> bool:
    return torch.is_autocast_enabled(tensor.device.type)


@contextmanager
def quiet_tracing() -> Generator[None]:
    """Preserve the random state, and record accesses as ops, so that checkpointing can replay draws.

    Refuses control flow on values. Other threads that trace wait.
    """
    states = kept_random_state(), random_state_functions(GET_STATE, SET_STATE)
    with TRACING, states[0], states[1], _RefuseCastsInKernels():
        try:
            yield
        except DEPENDS_ON_VALUES as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:100]
            raise UnsupportedError(
                f"the program depends on tensor values{place_of(error)} ({reason}); avoid .item(), nonzero and Python "
                "conditions on tensors"
            ) from error
