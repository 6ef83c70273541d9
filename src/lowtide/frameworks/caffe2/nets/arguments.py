"""The settings of an op, by name."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from lowtide.core.errors import MalformedInputError
from lowtide.frameworks.caffe2.proto.netdef import Argument, NetDef
from lowtide.frameworks.protobuf.text import decoded_text, read_text


class Arguments:
    """The settings of one op; the last of a name counts."""

    def __init__(self, op: Any) -> None:
        self._by_name: dict[str, Any] = {argument.name: argument for argument in op.arg}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def integer(self, name: str, default: int = 0) -> int:
        """Return a whole number."""
        return int(self._by_name[name].i) if name in self._by_name else default

    def with_integers(self, name: str, values: Sequence[int]) -> "Arguments":
        """Return the settings with whole numbers for one of them."""
        made = Arguments(NetDef())
        made._by_name = {**self._by_name, name: Argument(name=name, ints=list(values))}
        return made

    def number(self, name: str, default: float = 0.0) -> float:
        """Return a number."""
        return float(self._by_name[name].f) if name in self._by_name else default

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""
        return bytes(self._by_name[name].s).decode("utf-8", "replace") if name in self._by_name else default

    def integers(self, name: str) -> list[int]:
        """Return whole numbers; none where nothing was set."""
        return [int(value) for value in self._by_name[name].ints] if name in self._by_name else []

    def numbers(self, name: str) -> list[float]:
        """Return numbers; none where nothing was set."""
        return [float(value) for value in self._by_name[name].floats] if name in self._by_name else []

    def texts(self, name: str) -> list[str]:
        """Return texts; none where nothing was set."""
        if name not in self._by_name:
            return []
        return [bytes(value).decode("utf-8", "replace") for value in self._by_name[name].strings]


GRADIENT = "RecurrentNetworkGradient"


class StepNet(Protocol):
    """A net inside an argument of a recurrent op."""

    name: str
    op: Any
    external_input: Any
    external_output: Any


def step_nets(op: Any) -> Iterator[tuple[Any, StepNet]]:
    """Yield every step net of a recurrent op with the argument that holds it, as a message or as text.

    A net in text is read anew each time. Raises MalformedInputError for a text that is no net.
    """
    if not op.type.startswith("RecurrentNetwork"):
        return
    for argument in op.arg:
        if argument.name.endswith("step_net"):
            if is_text(argument):
                where = f"{argument.name} of op {op.name or op.type!r}"
                yield argument, read_text(NetDef, decoded_text(argument.s, where), where)
            else:
                yield argument, argument.n


def nets_run_by(op: Any) -> list[tuple[Any, StepNet]]:
    """Return the step nets that a recurrent op runs, as `step_nets` does: forward and backward ops carry both."""
    name = f"{'backward_' * (op.type == GRADIENT)}step_net"
    return [(argument, net) for argument, net in step_nets(op) if argument.name == name]


def is_text(argument: Any) -> bool:
    """Whether an argument holds its net as text."""
    return len(argument.s) > 0


def like(sample: Any, **values: Any) -> Any:
    """Return a new message of the kind of another one."""
    made = type(sample)()
    for name, value in values.items():
        if isinstance(value, list):
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made


def check_op(op: Any, where: str) -> None:
    """Raise MalformedInputError for an op without a type."""
    if not op.type:
        raise MalformedInputError(f"{where} has no type, so that nobody knows what it does; is this a NetDef?")
