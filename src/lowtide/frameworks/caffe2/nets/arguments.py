"""The arguments of an op and their step nets."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from lowtide.frameworks.caffe2.nets.netdef import Argument, NetDef
from lowtide.frameworks.protobuf.text import decoded_text, read_text


class Arguments:
    """The arguments of an op; the last of a name counts."""

    def __init__(self, op: Any) -> None:
        self._by_name: dict[str, Any] = {argument.name: argument for argument in op.arg}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def with_integers(self, name: str, values: Sequence[int]) -> "Arguments":
        made = Arguments(NetDef())
        made._by_name = {**self._by_name, name: Argument(name=name, ints=list(values))}
        return made

    def integer(self, name: str, default: int = 0) -> int:
        return int(self._by_name[name].i) if name in self._by_name else default

    def number(self, name: str, default: float = 0.0) -> float:
        return float(self._by_name[name].f) if name in self._by_name else default

    def text(self, name: str, default: str = "") -> str:
        return _decoded(self._by_name[name].s) if name in self._by_name else default

    def integers(self, name: str) -> list[int]:
        return [int(value) for value in self._by_name[name].ints] if name in self._by_name else []

    def numbers(self, name: str) -> list[float]:
        return [float(value) for value in self._by_name[name].floats] if name in self._by_name else []

    def texts(self, name: str) -> list[str]:
        return texts_of(self._by_name[name]) if name in self._by_name else []


def texts_of(argument: Any) -> list[str]:
    return [_decoded(value) for value in argument.strings]


def _decoded(value: bytes) -> str:
    return bytes(value).decode("utf-8", "replace")


GRADIENT = "RecurrentNetworkGradient"


class StepNet(Protocol):
    name: str
    op: Any
    external_input: Any
    external_output: Any


def step_nets(op: Any) -> Iterator[tuple[Any, StepNet]]:
    """Yield step nets of a recurrent op with their arguments; raises MalformedInputError for invalid text."""
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
    """Return the step nets that a recurrent op runs; gradient ops hold both."""
    name = f"{'backward_' * (op.type == GRADIENT)}step_net"
    return [(argument, net) for argument, net in step_nets(op) if argument.name == name]


def is_text(argument: Any) -> bool:
    return len(argument.s) > 0


def new_message(sample: Any, **values: Any) -> Any:
    made = type(sample)()
    for name, value in values.items():
        if isinstance(value, list):
            getattr(made, name).extend(value)
        else:
            setattr(made, name, value)
    return made
