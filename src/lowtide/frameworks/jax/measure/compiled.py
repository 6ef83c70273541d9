"""One way to run a function, compiled: what XLA says it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import default_backend

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.jax.flat.mesh import Flat
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import jit

Around = Callable[[Flat], Flat]
"""What a candidate is run within, and compiled with."""
_CPU_SCHEDULER = "xla_cpu_scheduler_type"
LEAST_MEMORY: Mapping[str, str] = {_CPU_SCHEDULER: "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}
"""The options of XLA's other scheduler for the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFigures:
    """What XLA says of a compiled function, in bytes, of one device."""

    temp_bytes: int
    """What it allocates beside arguments and results."""
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    """Results that lie where donated arguments lay."""

    @property
    def total_bytes(self) -> int:
        """Everything that is there at once: arguments, results of their own, and temporaries."""
        return self.temp_bytes + self.argument_bytes + self.output_bytes - self.alias_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCandidate:
    """A compiled function and how it came about."""

    name: str
    flat: Flat
    options: Mapping[str, str]
    executable: Any
    figures: CompiledFigures


def compile_flat(
    name: str, flat: Flat, traced: TracedFunction, options: Mapping[str, str], around: Around | None = None
) -> CompiledCandidate:
    """Compile a function of flat arguments for the shapes, donations and shardings of a traced one."""
    more: dict[str, Any] = {}
    if traced.shardings is not None:
        more = {"in_shardings": traced.shardings[0], "out_shardings": list(traced.shardings[1])}
    whole = flat if around is None else around(flat)

    def function(*leaves: Any) -> Sequence[Any]:
        return whole(*leaves)

    function.__name__ = traced.name  # what XLA calls the module
    jitted = jit(function, donate_argnums=[n for n, each in enumerate(traced.donated) if each], **more)
    executable = jitted.lower(*traced.structs).compile(compiler_options=dict(options) or None)
    return CompiledCandidate(
        name=name, flat=flat, options=options, executable=executable, figures=figures_of(executable)
    )


def figures_of(executable: Any) -> CompiledFigures:
    """Return what XLA says of a compiled function; raises UnsupportedError where this backend says nothing."""
    stats = executable.memory_analysis()
    if stats is None:
        raise UnsupportedError("this backend does not say how much memory a compiled function needs; use CPU or GPU")
    return CompiledFigures(
        temp_bytes=int(stats.temp_size_in_bytes),
        argument_bytes=int(stats.argument_size_in_bytes),
        output_bytes=int(stats.output_size_in_bytes),
        alias_bytes=int(stats.alias_size_in_bytes),
    )


def schedulers() -> tuple[Mapping[str, str], ...]:
    """Return the compiler options to try, one set a scheduler of the backend, its default first."""
    return ({}, LEAST_MEMORY) if default_backend() == "cpu" else ({},)
