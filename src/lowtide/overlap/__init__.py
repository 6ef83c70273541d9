"""Collectives beside computation: started early, and what they read freed late, as far as memory allows."""

from lowtide.overlap.communication import Communication, communication_of
from lowtide.overlap.hide import hide_collectives

__all__ = ["Communication", "communication_of", "hide_collectives"]
