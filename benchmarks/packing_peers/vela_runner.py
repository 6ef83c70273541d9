"""Run by the Python that has `ethos-u-vela`: a task as JSON on stdin, offsets and seconds as JSON on stdout."""

import json
import sys
import time
from dataclasses import dataclass

from ethosu.vela.hillclimb_allocation import (  # pyright: ignore[reportMissingImports]
    allocate_live_ranges,  # pyright: ignore[reportUnknownVariableType]
)


@dataclass
class LiveRange:
    """What the allocator asks of a live range; times are inclusive."""

    start_time: int
    end_time: int
    size: int

    def get_alignment(self) -> int:
        """Return the alignment of the address in bytes."""
        return 1


def main() -> None:
    """Read the task, place, answer."""
    task = json.load(sys.stdin)
    ranges = [LiveRange(*row) for row in zip(task["first"], task["last"], task["sizes"], strict=True)]
    started = time.perf_counter()
    offsets: list[int] = allocate_live_ranges(ranges, task["most_iterations"], task["memory_limit"])  # pyright: ignore[reportUnknownVariableType]
    print(json.dumps({"offsets": offsets, "seconds": time.perf_counter() - started}))


if __name__ == "__main__":
    main()
