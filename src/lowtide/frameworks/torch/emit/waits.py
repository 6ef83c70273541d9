"""When an emitted program waits for its collectives: at once on the CPU, else as late as its plan allows."""

from collections.abc import Callable, Collection, Iterable

from torch.fx import Node

from lowtide.core.index_spaces import BufferId
from lowtide.frameworks.torch.internals.nodes import value_of
from lowtide.frameworks.torch.reading.lowering import LoweredOp


class PendingWaits:
    """The collectives that an emitted program has started and not yet waited for.

    A reader of a result waits for it by itself, since the wait is what it reads. All else is asked for here: what a
    collective was given must neither be freed nor overwritten while it runs, and its result not be dropped.
    """

    def __init__(self, wait: Callable[[Node], object]) -> None:
        """Emit the waits with `wait`, which does nothing for a wait that stands already."""
        self._wait = wait
        self._started: dict[Node, LoweredOp] = {}

    def start(self, op: LoweredOp) -> None:
        """Note that a collective has been started; an op without waits is none."""
        if op.waits:
            self._started[op.node] = op
            if value_of(op.waits[0]).device.type == "cpu":  # gloo takes memory of its own while it runs
                self.all()

    def before_change(self, buffers: Collection[BufferId]) -> None:
        """Wait for what still reads or writes one of these buffers, which are about to be freed or overwritten."""
        if self._started and buffers:
            self._end(op for op in self._started.values() if not {*op.reads, *op.writes}.isdisjoint(buffers))

    def all(self) -> None:
        """Wait for everything that has been started."""
        self._end(self._started.values())

    def _end(self, ops: Iterable[LoweredOp]) -> None:
        for op in list(ops):
            for wait in op.waits:
                self._wait(wait)
            del self._started[op.node]
