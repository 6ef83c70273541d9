"""Offload to the host, decided together with recomputation: within a byte budget, at the lowest slow-down found.

Copies run on streams of their own. A run waits for copies of the buffers it touches, a free for copies of its buffer.
So a plan's slow-down is that of its timeline, and its memory follows from the order of its steps alone.

Optimizer state and parameters may live on the host. Ops of the graph then copy them (`state_in_graph`), and a plan may
repeat copies of parameters like recomputed ops.
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
