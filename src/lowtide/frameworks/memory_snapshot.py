"""PyTorch memory snapshots: recorded allocations and frees as a graph in program order."""

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from lowtide.core.errors import MalformedInputError, UnsupportedError, named_type
from lowtide.core.files import read_bytes
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan
from lowtide.frameworks.allocations import FREED, kept_blocks, place_of, recorded_peak, whole
from lowtide.frameworks.model import UnrunnableModel
from lowtide.reporting.recorded import Recorded

_MICROSECOND = 1e-6


class SnapshotModel(UnrunnableModel):
    """A recorded program. Only addresses can be planned, because reads are unknown."""

    KIND = "a memory snapshot"

    def __init__(self, graph: Graph, recorded: tuple[Recorded, ...]) -> None:
        super().__init__(graph)
        self._recorded = recorded

    @property
    def recorded(self) -> tuple[Recorded, ...]:
        return self._recorded

    def apply(self, plan: Plan) -> NoReturn:
        raise UnsupportedError("a memory snapshot cannot be run; write a plan file (.plan.json)")


def open_snapshot(path: str) -> SnapshotModel:
    """Open a memory snapshot of `torch.cuda.memory._dump_snapshot`, without running its code.

    Each allocation, free and failed request becomes an op. Earlier blocks are inputs if freed later, else persistent.
    Blocks alive at the end are outputs. O(events). Raises InputError; MalformedInputError for an invalid or empty
    snapshot.
    """
    snapshot = _load(path)
    traces = snapshot.get("device_traces")
    if not isinstance(traces, list):
        raise MalformedInputError(f"{path}: device_traces is missing; give a snapshot of torch.cuda.memory")
    devices = cast("list[Any]", traces)
    used = [number for number, trace in enumerate(devices) if trace]
    if not used:
        raise MalformedInputError(f"{path}: no events; record some with torch.cuda.memory._record_memory_history()")
    builder = GraphBuilder(Path(path).name)
    for number in used:
        builder.add_space(f"device{number}")
    names: dict[str, int] = {}
    segments = cast("list[Mapping[str, Any]]", snapshot.get("segments") or [])
    try:
        for space, number in enumerate(used):
            _Events(builder, space, names).add(devices[number])
            for where, block in kept_blocks(segments, number, devices[number]):
                builder.add_buffer(f"{block.place} at {where:#x}", block.size, Lifetime.PERSISTENT, space=space)
        recorded = tuple(recorded_peak(f"device{number}", number, segments, devices[number]) for number in used)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedInputError(
            f"{path}: invalid event or block ({type(error).__name__}: {error}); record the snapshot again"
        ) from None
    builder.note("reads of buffers: each buffer is live from its recorded allocation to its recorded free")
    return SnapshotModel(builder.build(), recorded)


class _Events:
    def __init__(self, builder: GraphBuilder, space: int, names: dict[str, int]) -> None:
        self._builder, self._space, self._names = builder, space, names
        self._last_time: int | None = None

    def add(self, events: list[Mapping[str, Any]]) -> None:
        lifetimes = _lifetimes(events)
        alive: dict[int, int] = {}
        before = [event for event, known in zip(events, lifetimes, strict=True) if known == Lifetime.DONATED]
        for event in before:
            where = whole(event["addr"])
            alive[where] = self._buffer(event, Lifetime.DONATED)
        for event, lifetime in zip(events, lifetimes, strict=True):
            if event["action"] == "alloc" and lifetime is not None:
                where = whole(event["addr"])
                alive[where] = self._buffer(event, lifetime)
                self._op("alloc", event, writes=[alive[where]])
            elif event["action"] == FREED:
                self._op("free", event, reads=[alive.pop(whole(event["addr"]))])
            elif event["action"] == "oom":
                self._op("failed", event, writes=[self._buffer(event, Lifetime.INTERMEDIATE)])

    def _buffer(self, event: Mapping[str, Any], lifetime: Lifetime) -> int:
        size = whole(event["size"])
        return self._builder.add_buffer(self._named(place_of(event)), size, lifetime, space=self._space)

    def _op(
        self, kind: str, event: Mapping[str, Any], *, reads: Sequence[int] = (), writes: Sequence[int] = ()
    ) -> None:
        time = event.get("time_us")
        cost = 0.0
        if isinstance(time, int):
            cost = max(0, time - (time if self._last_time is None else self._last_time)) * _MICROSECOND
            self._last_time = time
        self._builder.add_op(
            self._named(f"{kind} {place_of(event)}"),
            kind,
            pure=False,
            ordered=True,
            cost=cost,
            reads=reads,
            writes=writes,
        )

    def _named(self, name: str) -> str:
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name} #{count}" if count else name


def _lifetimes(events: list[Mapping[str, Any]]) -> list[Lifetime | None]:
    found: list[Lifetime | None] = [None] * len(events)
    alive: dict[int, int] = {}
    for number, event in enumerate(events):  # an event "oom" has no address
        if event["action"] == "alloc":
            found[number] = Lifetime.OUTPUT
            alive[whole(event["addr"])] = number
        elif event["action"] == FREED:
            made = alive.pop(whole(event["addr"]), None)
            found[number if made is None else made] = Lifetime.DONATED if made is None else Lifetime.INTERMEDIATE
    return found


class _DataOnly(pickle.Unpickler):
    """Unpickler of plain data, without imports or calls."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it refers to {module_name}.{global_name}, but a snapshot contains data only")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise pickle.UnpicklingError("it refers to external data")


def _load(path: str) -> dict[str, Any]:
    content = read_bytes(Path(path))
    try:
        snapshot = _DataOnly(io.BytesIO(content)).load()
    except MemoryError:
        raise MalformedInputError(f"{path}: the file is damaged; record the snapshot again") from None
    except Exception as error:  # a damaged pickle may raise any error
        raise MalformedInputError(f"{path}: not a memory snapshot ({type(error).__name__}: {error})") from None
    if not isinstance(snapshot, dict):
        raise MalformedInputError(f"{path}: expected a dict, found {named_type(snapshot)}; give a memory snapshot")
    return cast("dict[str, Any]", snapshot)
