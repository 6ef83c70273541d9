"""Memory snapshots of PyTorch: what was observed to be allocated and freed becomes a graph that keeps its order."""

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from lowtide.core.errors import MalformedInputError, UnsupportedError
from lowtide.core.files import read_bytes
from lowtide.engine.graph import Graph, GraphBuilder, Lifetime
from lowtide.engine.plan import Plan
from lowtide.frameworks.model import UnrunnableModel

_MICROSECOND = 1e-6
_LIBRARY = ("/torch/", "<frozen", "torch/csrc", "??")
_LONGEST_NAME = 200


class SnapshotModel(UnrunnableModel):
    """A recorded program: where its buffers lie can be planned, nothing else, since nobody saw who reads them."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, "a memory snapshot")

    @property
    def file_endings(self) -> tuple[str, ...]:
        """None: a snapshot is a record."""
        return ()

    def apply(self, plan: Plan) -> NoReturn:
        """Raise UnsupportedError: a record is no program."""
        raise UnsupportedError("a memory snapshot is a record and no program; write a plan file (.plan.json)")

    def save(self, plan: Plan, path: Path) -> NoReturn:
        """Raise UnsupportedError: a record is no program."""
        self.apply(plan)


def open_snapshot(path: str) -> SnapshotModel:
    """Open a memory snapshot as `torch.cuda.memory._dump_snapshot` writes it; nothing in it runs as code.

    Every allocation and every free is an op; all keep their places. What was there before the record began and is never
    freed is persistent, what is freed later an input; what is there at the end is an output. O(events).
    Raises InputError, and MalformedInputError for what is no snapshot, or one without any event.
    """
    snapshot = _load(path)
    traces = snapshot.get("device_traces")
    if not isinstance(traces, list):
        raise MalformedInputError(f"{path}: it has no device_traces; give a snapshot of torch.cuda.memory")
    devices = cast("list[Any]", traces)
    used = [number for number, trace in enumerate(devices) if trace]
    if not used:
        raise MalformedInputError(
            f"{path}: it holds no event; record some with torch.cuda.memory._record_memory_history()"
        )
    builder = GraphBuilder(Path(path).name)
    for number in used:
        builder.add_space(f"device{number}")
    names: dict[str, int] = {}
    try:
        for space, number in enumerate(used):
            _Events(builder, space, names).add(devices[number])
        _add_persistent(builder, snapshot.get("segments") or [], used, devices)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise MalformedInputError(
            f"{path}: an event or block is no such thing ({type(error).__name__}: {error}); record the snapshot anew"
        ) from None
    builder.note("who reads what: every buffer stays from the allocation to the free that were observed")
    return SnapshotModel(builder.build())


class _Events:
    """The events of one device on their way into a graph."""

    def __init__(self, builder: GraphBuilder, space: int, names: dict[str, int]) -> None:
        """`names` counts how often every name was asked for."""
        self._builder, self._space, self._names = builder, space, names
        self._last_time: int | None = None

    def add(self, events: list[Mapping[str, Any]]) -> None:
        """Add all events; a free without an allocation is of something that was there before."""
        lifetimes = _lifetimes(events)
        alive: dict[int, int] = {}
        before = [event for event, known in zip(events, lifetimes, strict=True) if known == Lifetime.DONATED]
        for event in before:
            where = _whole(event["addr"])
            alive[where] = self._buffer(event, Lifetime.DONATED)
        for event, lifetime in zip(events, lifetimes, strict=True):
            where = _whole(event["addr"])
            if event["action"] == "alloc" and lifetime is not None:
                alive[where] = self._buffer(event, lifetime)
                self._op("alloc", event, writes=[alive[where]])
            elif event["action"] == "free_completed" and where in alive:
                self._op("free", event, reads=[alive.pop(where)])

    def _buffer(self, event: Mapping[str, Any], lifetime: Lifetime) -> int:
        size = _whole(event["size"])
        return self._builder.add_buffer(self._named(_place(event)), size, lifetime, space=self._space)

    def _op(
        self, kind: str, event: Mapping[str, Any], *, reads: Sequence[int] = (), writes: Sequence[int] = ()
    ) -> None:
        time = event.get("time_us")
        cost = 0.0
        if isinstance(time, int):
            cost = max(0, time - (time if self._last_time is None else self._last_time)) * _MICROSECOND
            self._last_time = time
        self._builder.add_op(
            self._named(f"{kind} {_place(event)}"),
            kind,
            pure=False,
            ordered=True,
            cost=cost,
            reads=reads,
            writes=writes,
        )

    def _named(self, name: str) -> str:
        """Return a name of its own."""
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return f"{name} #{count}" if count else name


def _lifetimes(events: list[Mapping[str, Any]]) -> list[Lifetime | None]:
    """Return the class of what every allocation makes, DONATED at a free of what nobody allocated, else None."""
    found: list[Lifetime | None] = [None] * len(events)
    alive: dict[int, int] = {}
    for number, event in enumerate(events):
        where = _whole(event["addr"])
        if event["action"] == "alloc":
            found[number] = Lifetime.OUTPUT
            alive[where] = number
        elif event["action"] == "free_completed":
            made = alive.pop(where, None)
            found[number if made is None else made] = Lifetime.DONATED if made is None else Lifetime.INTERMEDIATE
    return found


def _add_persistent(
    builder: GraphBuilder, segments: list[Mapping[str, Any]], used: list[int], traces: list[Any]
) -> None:
    """Add what no event is of: blocks that are there at the end and were never allocated meanwhile."""
    seen = [{_whole(event["addr"]) for event in traces[number] if event["action"] == "alloc"} for number in used]
    for segment in segments:
        device = segment.get("device", 0)
        if device not in used:
            continue
        space = used.index(device)
        for where, block in _blocks(segment):
            if block.get("state") == "active_allocated" and where not in seen[space]:
                size = _whole(block.get("requested_size") or block["size"])
                builder.add_buffer(f"{_place(block)} at {where:#x}", size, Lifetime.PERSISTENT, space=space)


def _blocks(segment: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    where = _whole(segment["address"])
    for block in segment["blocks"]:
        yield _whole(block.get("address", where)), block
        where += _whole(block["size"])


def _place(event: Mapping[str, Any]) -> str:
    """Return where something was allocated or freed: the user's own innermost line, else the innermost of all."""
    frames: list[Mapping[str, Any]] = event.get("frames") or []
    own = [frame for frame in frames if not any(part in str(frame.get("filename")) for part in _LIBRARY)]
    frame = next(iter(own or frames), None)
    if frame is None:
        return "unknown"
    line = frame.get("line")
    where = f"{frame.get('filename')}:{line}" if line else str(frame.get("filename"))
    return f"{where} {frame.get('name')}"[-_LONGEST_NAME:]


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise ValueError(f"{str(number)[:40]} is no address or size")
    return number


class _DataOnly(pickle.Unpickler):
    """Reads pickles of plain data: dicts, lists, texts, numbers. Nothing is imported and nothing is called."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        """Refuse: a snapshot names no class."""
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}, and a snapshot holds data alone")

    def persistent_load(self, pid: Any) -> NoReturn:
        """Refuse: a snapshot refers to nothing outside."""
        raise pickle.UnpicklingError("it refers to something outside")


def _load(path: str) -> dict[str, Any]:
    content = read_bytes(Path(path))
    try:
        snapshot = _DataOnly(io.BytesIO(content)).load()
    except MemoryError:
        raise MalformedInputError(f"{path}: it is broken; record the snapshot anew") from None
    except Exception as error:  # what a broken pickle raises is whatever its bytes lead to
        raise MalformedInputError(f"{path}: no memory snapshot ({type(error).__name__}: {error})") from None
    if not isinstance(snapshot, dict):
        raise MalformedInputError(f"{path}: it holds a {type(snapshot).__name__}, and a snapshot is a dict")
    return cast("dict[str, Any]", snapshot)
