"""Descriptions of PyTorch training steps that are built and read in another process, without importing PyTorch."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from lowtide.core.errors import UsageError
from lowtide.engine.costs import Device
from lowtide.engine.graph import Graph
from lowtide.engine.planning.program import FormName

STEP_AND_BATCH = "(lowtide.torch.TrainingStep(model, loss_function, optimizer), batch)"
SourceKind = Literal["config", "id", "callable", "sent"]
OptimizerName = Literal["adamw", "adam", "sgd", "adafactor"]
PrecisionName = Literal["float32", "bfloat16", "float16", "amp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How to build a training step without weights."""

    kind: SourceKind
    """A Hugging Face configuration; an id of Hugging Face or timm; a callable's name; or a program from
    `pickled_forms`.
    """
    name: str = ""
    content: bytes = b""
    main: str | None = None
    optimizer: OptimizerName = "adamw"
    precision: PrecisionName = "float32"
    """For "amp", weights are float32, and computations run in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Build and read a step as PyTorch runs it eagerly; answered by `Step`, or None for another program."""

    device: Device | None
    """None for tensors on "meta", whose attention is plain products."""
    recipe: Recipe
    batch: int | None = None
    """First dimension of the inputs; None for the program's."""
    sequence: int | None = None
    """Tokens per row; None for the usual number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInChunks:
    """Read a step in chunks, equal up to rounding; answered by a `Graph` or None."""

    step: Read
    form: FormName


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """A training step as PyTorch runs it eagerly, with its sizes."""

    graph: Graph
    batch: int | None
    """None without a common first dimension."""
    sequence: int | None
    longest: int | None
    """Most tokens that the model accepts."""
    settings: str
    """Optimizer and precision; empty if the program chooses them."""
    code: Sequence[str]
    parts: tuple[str, ...]
    """Model, loss function and optimizer in the code; empty for a function."""
    options: tuple[str, ...] = ()
    given: str = ""
    """The user's object that the code takes with `batch`; empty if the code makes both."""
    moves_parameters: bool = True
    call: Literal["*batch", "**batch", "batch"]


def require_transformers(name: str) -> None:
    """Raise UsageError unless transformers is installed."""
    if find_spec("transformers") is None:
        raise UsageError(
            f"{name!r} is a configuration of Hugging Face, which needs transformers; "
            "install it with: pip install transformers"
        )
