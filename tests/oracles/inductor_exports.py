"""What the real Inductor exports while it compiles, and the peaks it estimates for its own orders."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor import config, memory

COUNTS_RESULTS = hasattr(memory, "peak_memory_from_buf_info_list")
"""Whether the estimates count results. PyTorch 2.11 subtracts them at the first kernel."""


@dataclass
class Exported:
    """One export, and the peaks of the program's order and of Inductor's, as Inductor logs them."""

    text: str
    peaks: dict[str, int] = field(default_factory=dict)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Exported] = []
        self._baseline = 0

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("Baseline peak memory"):
            self.found[-1].peaks["given"] = record.args[0]  # pyright: ignore[reportOptionalSubscript, reportArgumentType]
        elif str(record.msg).endswith("peak memory: %d"):
            method, peak = record.args  # pyright: ignore[reportGeneralTypeIssues, reportAssignmentType]
            self.found[-1].peaks[method.removeprefix("topological_sort_")] = peak
        elif getattr(record, "metadata", {}).get("artifact", {}).get("name", "").endswith("_fused"):
            self.found.append(Exported(record.payload))  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def _listening() -> Iterator[_Listener]:
    listener = _Listener()
    loggers = {name: logging.getLogger(name) for name in ("torch.__trace", "torch._inductor.memory")}
    before = {name: (logger.level, logger.propagate) for name, logger in loggers.items()}
    for logger in loggers.values():
        logger.addHandler(listener)
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
    try:
        yield listener
    finally:
        for name, logger in loggers.items():
            logger.removeHandler(listener)
            logger.setLevel(before[name][0])
            logger.propagate = before[name][1]


def exports_of(function: Callable[..., Any], *inputs: Any, backward: bool = False) -> list[Exported]:
    """Compile a function for its inputs and return what Inductor exports: forward, then backward."""
    settings = {"reorder_for_peak_memory": True, "reorder_for_peak_memory_debug": True, "fx_graph_cache": False}
    torch._dynamo.reset()
    with _listening() as listener, config.patch(settings), torch._functorch.config.patch(enable_autograd_cache=False):
        result = torch.compile(function)(*inputs)
        if backward:
            result.backward()
    torch._dynamo.reset()
    return listener.found


class Foo(torch.nn.Module):
    """The model of Inductor's own test of its orders."""

    def __init__(self) -> None:
        super().__init__()
        shapes = ((1, 10), (1, 1), (10, 1), (1, 10))
        self.weights = torch.nn.ParameterList(torch.ones(shape) for shape in shapes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, third, fourth = self.weights
        left, right = x @ first, x @ second
        return (left @ third).sum() + (right @ fourth).sum()
