"""Arm Vela's hill climb as a program: the allocator of `ethos-u-vela`, run by a Python that has it installed."""

import json
import subprocess
from pathlib import Path

import numpy as np

from packing_peers.placed import Ints
from packing_peers.sections import live_bytes

RUNNER = Path(__file__).with_name("vela_runner.py")


def vela(
    python: Path, first: Ints, last: Ints, sizes: Ints, *, most_iterations: int, limit_seconds: float
) -> tuple[Ints | None, float]:
    """Return offsets, or None when it was not done in time, and the seconds of the allocator alone.

    Time is given to it in sections, which changes nothing. It is asked for the bound and stops there, or after
    `most_iterations` and 500 without progress.
    """
    edges, bytes_of = live_bytes(first, last, sizes)
    task = {
        "first": edges.searchsorted(first).tolist(),
        "last": (edges.searchsorted(last) - 1).tolist(),  # the last section it is live in
        "sizes": sizes.tolist(),
        "memory_limit": int(bytes_of.max()),
        "most_iterations": most_iterations,
    }
    try:
        done = subprocess.run(
            [python, RUNNER], input=json.dumps(task), capture_output=True, text=True, check=True, timeout=limit_seconds
        )
    except subprocess.TimeoutExpired:
        return None, limit_seconds
    answer = json.loads(done.stdout.splitlines()[-1])
    return np.array(answer["offsets"], np.int64), answer["seconds"]
