"""Simulation of the time of a plan, with streams for compute, collectives and each direction of copies.

A run waits for copies of the buffers it touches, and a free for copies of the buffer it frees. Memory over time is
therefore given by the order of the steps, independent of time.

Costs and their bounds assume one stream for all ops, collectives included. Plans are chosen by these costs.
"""

from lowtide.engine.timeline.play import Transfers, play_timeline, transfers_of
from lowtide.engine.timeline.timeline import COLLECTIVES, COMPUTE, NO_STREAM, Timeline

__all__ = ["COLLECTIVES", "COMPUTE", "NO_STREAM", "Timeline", "Transfers", "play_timeline", "transfers_of"]
