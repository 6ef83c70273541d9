"""Simulation of the time of a plan, with streams for compute, collectives and each direction of copies.

Waits follow from the order of the steps, so memory is independent of time. Costs and their bounds assume one stream for
all ops.
"""

from lowtide.engine.timeline.off_device_ops import off_device_ops
from lowtide.engine.timeline.play import Transfers, play_timeline, transfers_of
from lowtide.engine.timeline.timeline import COLLECTIVES, COMPUTE, NO_STREAM, Timeline

__all__ = [
    "COLLECTIVES",
    "COMPUTE",
    "NO_STREAM",
    "Timeline",
    "Transfers",
    "off_device_ops",
    "play_timeline",
    "transfers_of",
]
