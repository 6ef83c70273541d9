"""When a plan's steps happen: an event simulation with streams for compute, collectives, every direction of copies."""

from lowtide.engine.timeline.play import play_timeline
from lowtide.engine.timeline.timeline import COLLECTIVES, COMPUTE, NO_STREAM, Timeline
from lowtide.engine.timeline.transfers import Transfers, transfers_of

__all__ = ["COLLECTIVES", "COMPUTE", "NO_STREAM", "Timeline", "Transfers", "play_timeline", "transfers_of"]
