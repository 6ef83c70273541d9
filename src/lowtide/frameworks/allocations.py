"""Events and blocks of PyTorch memory snapshots, and the peak of a device's recording."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.reporting.recorded import Recorded, RecordedLine

_LIBRARY = ("/torch/", "<frozen", "torch/csrc", "??", "<eval_with_key>", "/torchinductor_", "fx_generated_")
_TRACED = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""A line of PyTorch's trace of an op."""
_LONGEST_NAME = 200
_RESERVES = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
_UNKNOWN = "unknown"
_BEFORE = "allocated before the recording"
FREED = "free_completed"
"""Action after which memory can be allocated again."""


@dataclass(frozen=True, slots=True)
class AllocatedBlock:
    size: int
    place: str


def place_of(event: Mapping[str, Any]) -> str:
    """Return the innermost line of user code of an event, else the innermost line.

    Generated code counts as its source line (`augment_with_fx_traces=True`), or not at all.
    """
    recorded: list[Mapping[str, Any]] = event.get("frames") or []
    frames = [_as_written(frame) for frame in recorded]
    own = [frame for frame in frames if not any(part in str(frame.get("filename")) for part in _LIBRARY)]
    frame = next(iter(own or frames), None)
    if frame is None:
        return _UNKNOWN
    line = frame.get("line")
    where = f"{frame.get('filename')}:{line}" if line else str(frame.get("filename"))
    return f"{where} {frame.get('name')}"[-_LONGEST_NAME:]


def _as_written(frame: Mapping[str, Any]) -> Mapping[str, Any]:
    lines = _TRACED.findall(str(frame.get("fx_original_trace") or ""))
    if not lines:
        return frame
    filename, line, name = lines[-1]
    return {"filename": filename, "line": int(line), "name": name}


def whole(number: Any) -> int:
    """Return an address or size. Raises ValueError."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
        raise ValueError(f"{str(number)[:40]} is not an address or size")
    return number


def kept_blocks(
    segments: Sequence[Mapping[str, Any]], device: int, events: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[int, AllocatedBlock]]:
    """Yield memory allocated at the end, but not during the recording."""
    seen = {whole(event["addr"]) for event in events if event["action"] == "alloc"}
    for segment in segments:
        if segment.get("device", 0) != device:
            continue
        start = whole(segment["address"])
        for block in segment["blocks"]:
            where = whole(block.get("address", start))
            start += whole(block["size"])
            if block.get("state") != "inactive" and where not in seen:
                size = whole(block.get("requested_size") or block["size"])
                place = place_of(_with_frames(block))
                yield where, AllocatedBlock(size, _BEFORE if place == _UNKNOWN else place)


def freed_from_before(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    alive: set[int] = set()
    found: list[Mapping[str, Any]] = []
    for event in events:
        if event["action"] == "alloc":
            alive.add(whole(event["addr"]))
        elif event["action"] == FREED:
            where = whole(event["addr"])
            if where not in alive:
                found.append(event)
            alive.discard(where)
    return found


def recorded_peak(
    space: str, device: int, segments: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]
) -> Recorded:
    """Return a device's peak; a failed request counts as allocated. O(events)."""
    kept = dict(kept_blocks(segments, device, events))
    start = {whole(event["addr"]): AllocatedBlock(whole(event["size"]), _BEFORE) for event in freed_from_before(events)}
    held = most = sum(block.size for block in (*kept.values(), *start.values()))
    at = 0
    for number, (change, failed) in enumerate(map(_change, events), start=1):
        held += change
        if held + failed > most:
            most, at = held + failed, number
    live = _replayed(start, events[:at])
    failed = events[at - 1] if at and events[at - 1]["action"] == "oom" else None
    blocks = [*kept.values(), *live.values()]
    if failed is not None:
        blocks.append(AllocatedBlock(whole(failed["size"]), f"{place_of(failed)} (failed)"))
    made = [
        AllocatedBlock(whole(each["size"]), place_of(each)) for each in events if each["action"] in ("alloc", "oom")
    ]
    largest = max([*start.values(), *made], key=lambda block: block.size, default=AllocatedBlock(0, _UNKNOWN))
    reserved = _reserved(segments, device, events[at:])
    failed_bytes = None if failed is None else whole(failed["size"])
    return Recorded(
        space=space,
        n_events=len(events),
        peak_event=at,
        peak_bytes=most,
        failed_bytes=failed_bytes,
        failed_at=None if failed is None else place_of(failed),
        device_free_bytes=None if failed is None or "device_free" not in failed else whole(failed["device_free"]),
        reserved_bytes=reserved if reserved >= most - (failed_bytes or 0) else None,
        kept_bytes=sum(block.size for block in kept.values()),
        largest_bytes=largest.size,
        largest_at=largest.place,
        lines=_by_line(blocks),
    )


def _with_frames(block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a block with its frames, which old snapshots have in its history."""
    history = block.get("history")
    return history[0] if history and "frames" not in block else block


def _change(event: Mapping[str, Any]) -> tuple[int, int]:
    action = event["action"]
    if action in ("alloc", FREED):
        return (1 if action == "alloc" else -1) * whole(event["size"]), 0
    return 0, whole(event["size"]) if action == "oom" else 0


def _replayed(start: Mapping[int, AllocatedBlock], events: Sequence[Mapping[str, Any]]) -> dict[int, AllocatedBlock]:
    live = dict(start)
    for event in events:
        if event["action"] == "alloc":
            live[whole(event["addr"])] = AllocatedBlock(whole(event["size"]), place_of(event))
        elif event["action"] == FREED:
            live.pop(whole(event["addr"]), None)
    return live


def _reserved(segments: Sequence[Mapping[str, Any]], device: int, later: Sequence[Mapping[str, Any]]) -> int:
    end = sum(whole(each.get("total_size", 0)) for each in segments if each.get("device", 0) == device)
    return end - sum(_RESERVES.get(event["action"], 0) * whole(event.get("size", 0)) for event in later)


def _by_line(blocks: Sequence[AllocatedBlock]) -> tuple[RecordedLine, ...]:
    groups: dict[str, list[int]] = {}
    for block in blocks:
        groups.setdefault(block.place, []).append(block.size)
    rows = [RecordedLine(where=where, size_bytes=sum(sizes), n_tensors=len(sizes)) for where, sizes in groups.items()]
    return tuple(sorted(rows, key=lambda row: -row.size_bytes))
