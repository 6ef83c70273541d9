"""Offload to the host decided together with recomputation: within a byte budget, at the least slow-down."""

from lowtide.engine.offload.host_space import HOST, Host, Link, find_link, with_host_space
from lowtide.engine.offload.within_budget import OffloadResult, plan_within_budget

__all__ = ["HOST", "Host", "Link", "OffloadResult", "find_link", "plan_within_budget", "with_host_space"]
