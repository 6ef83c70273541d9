"""When a plan's steps happen: an event simulation with one stream for compute and one for each direction of copies."""

from lowtide.timeline.play import play_timeline
from lowtide.timeline.timeline import COMPUTE, NO_STREAM, Timeline
from lowtide.timeline.transfers import Transfers, transfers_of

__all__ = ["COMPUTE", "NO_STREAM", "Timeline", "Transfers", "play_timeline", "transfers_of"]
