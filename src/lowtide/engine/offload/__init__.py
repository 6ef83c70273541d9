"""Offload to the host, decided together with recomputation: within a byte budget, at the lowest slow-down found.

A run waits for copies of the buffers it touches, a free for copies of its buffer. So memory follows from the order of
steps alone.

Ops of the graph copy optimizer state and parameters that live on the host (`state_in_graph`).
"""

from lowtide.engine.offload.host_space import (
    HOST,
    Host,
    Link,
    find_link,
    host_of_device,
    with_host_space,
    with_state_on_host,
)
from lowtide.engine.offload.within_budget import OffloadResult, plan_within_budget

__all__ = [
    "HOST",
    "Host",
    "Link",
    "OffloadResult",
    "find_link",
    "host_of_device",
    "plan_within_budget",
    "with_host_space",
    "with_state_on_host",
]
