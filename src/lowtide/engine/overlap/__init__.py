"""Overlap collectives with computation: start them early and free their operands late, as far as memory allows.

Plans are chosen as if ops ran one after another, because cost bounds are sums over ops. Steps then move within the
memory left free, so peak and cost keep their bounds.
"""

from lowtide.engine.overlap.hide_collectives import Communication, communication_of, hide_collectives

__all__ = ["Communication", "communication_of", "hide_collectives"]
