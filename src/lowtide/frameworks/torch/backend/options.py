"""What a user may say to the backend, checked before anything is traced."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args

from lowtide.costs import ProfileName
from lowtide.effort import EffortName
from lowtide.errors import UsageError
from lowtide.frameworks.torch.host_copies.link import check_host

COMPILERS = ("inductor", "eager")
MEANS = ("reorder", "share", "recompute", "offload")
_BY_DEFAULT = ("reorder", "share", "recompute")
_OF_INDUCTOR = ("reorder", "recompute", "offload")
"""Inductor decides on its own which outputs take over the storage of inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What every graph of a compiled program is planned with."""

    budget: str | int | None = None
    """What the device may hold while a graph runs, its parameters included ("8 GiB"), or a part of the peak of the
    untouched graph without them ("50%"); None for the least peak without running anything again."""
    allow: tuple[str, ...] | None = None
    """Means, as `lowtide.minimize` takes them; None for all but "offload" that the compiler and the budget have a use
    for."""
    host_bandwidth: str | int | None = None
    """For "offload": how fast copies to the host and back are, each way ("25 GB/s", bytes per second); None for 1/64 of
    the speed of the device's memory, as PCIe is beside a GPU's."""
    host_capacity: str | int | None = None
    """For "offload": what the host may hold of a program's at once; None for any amount."""
    compiler: str = "inductor"
    costs: ProfileName | None = None
    """What ops cost when it is decided what runs again; None for what suits the compiler."""
    effort: EffortName = "fast"
    """How much work planning may take; the default keeps it short beside compiling."""
    plans: str | None = None
    """A folder of plans to follow instead of planning, as `lowtide.torch.save_plans` wrote it for the same options."""
    same_on_all_ranks: bool | None = None
    """Whether every graph must be the same on all ranks of `torch.distributed`; None: where collectives in the graph
    wait for other ranks, it must be the same on those."""

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> "Options":
        """Read the options of a `torch.compile` call; raises UsageError for any that does not exist or fit."""
        values = dict(given or {})
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise UsageError(f"backend 'lowtide' has no option {unknown[0]!r}; it takes {', '.join(known)}")
        allow = values.get("allow")
        if allow is not None:
            values["allow"] = (allow,) if isinstance(allow, str) else tuple(allow)
        options = cls(**values)
        if options.compiler not in COMPILERS:
            raise UsageError(f"unknown compiler {options.compiler!r}; choose one of {', '.join(COMPILERS)}")
        if options.effort not in get_args(EffortName):
            raise UsageError(f"unknown effort {options.effort!r}; choose one of {', '.join(get_args(EffortName))}")
        if options.costs is not None and options.costs not in get_args(ProfileName):
            raise UsageError(f"unknown costs {options.costs!r}; choose one of {', '.join(get_args(ProfileName))}")
        wrong = [means for means in options.allow or () if means not in MEANS]
        if wrong:
            raise UsageError(f"backend 'lowtide' cannot {wrong[0]!r}; it can {', '.join(MEANS)}")
        check_host(options.allow, options.host_bandwidth, options.host_capacity)
        return options

    @property
    def means(self) -> frozenset[str]:
        """What planning may do: all of it without a choice, less what the compiler decides on its own."""
        chosen = frozenset(_BY_DEFAULT if self.allow is None else self.allow)
        if self.budget is None:
            chosen -= {"recompute", "offload"}
        return chosen & frozenset(_OF_INDUCTOR) if self.compiler == "inductor" else chosen

    @property
    def means_before_fusion(self) -> frozenset[str]:
        """What the plan of a whole graph may do. Without a budget Inductor's choice of what to save stands, and only
        the order of its kernels is planned."""
        return self.means if self.compiler == "eager" or self.budget is not None else frozenset()

    @property
    def profile(self) -> ProfileName:
        """The prices of ops: under Inductor element-wise ones cost next to nothing, since they are fused."""
        return self.costs or ("fused" if self.compiler == "inductor" else "eager")
