"""Collectives beside computation: started early, and what they read freed late, as far as memory allows."""

from lowtide.engine.overlap.communication import Communication, communication_of
from lowtide.engine.overlap.hide import hide_collectives

__all__ = ["Communication", "communication_of", "hide_collectives"]
