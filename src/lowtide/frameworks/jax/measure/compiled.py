"""Compile and read XLA's memory figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.buffer_assignment import read_assignment
from lowtide.frameworks.jax.flat.flatten import Flat
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import jax

_CPU_SCHEDULER = "xla_cpu_scheduler_type"
LEAST_MEMORY: Mapping[str, str] = {_CPU_SCHEDULER: "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledFigures:
    """XLA's memory figures, in bytes per device."""

    temp_bytes: int
    """Without arguments and results."""
    argument_bytes: int
    output_bytes: int
    alias_bytes: int
    """Results in the storage of donated arguments."""

    @property
    def total_bytes(self) -> int:
        """Bytes of arguments, results and temporaries."""
        return self.temp_bytes + self.argument_bytes + self.output_bytes - self.alias_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledCandidate:
    name: str
    flat: Flat
    options: Mapping[str, str]
    executable: Any
    figures: CompiledFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedBytes:
    """Bytes in a buffer assignment, without constants and thread-local ones."""

    reserved_bytes: int
    temp_bytes: int
    unused_bytes: int
    """In temporaries, used by no buffer."""
    allocations: int


def compile_flat(name: str, flat: Flat, traced: TracedFunction, options: Mapping[str, str]) -> CompiledCandidate:
    flat = traced.around(flat)
    inside, outside = traced.shardings or (None, None)
    more = {} if inside is None else {"in_shardings": inside}
    more |= {} if outside is None else {"out_shardings": list(outside)}

    def function(*leaves: Any) -> Sequence[Any]:
        return flat(*leaves)

    function.__name__ = traced.name  # XLA's name for the module
    jitted = jax.jit(function, donate_argnums=[n for n, each in enumerate(traced.donated) if each], **more)
    executable = jitted.lower(*traced.structs).compile(compiler_options=dict(options) or None)
    return CompiledCandidate(
        name=name, flat=flat, options=options, executable=executable, figures=_figures_of(executable)
    )


def assigned_bytes(executable: Any) -> AssignedBytes | None:
    """Read the buffer assignment, if the backend exposes it."""
    content = getattr(executable.memory_analysis(), "serialized_buffer_assignment_proto", None)
    if not content:
        return None
    counted = [
        each
        for each in read_assignment(content, {}, "the compiled function")
        if not (each.is_constant or each.is_thread_local)
    ]
    temporary = [each for each in counted if each.is_temporary]
    return AssignedBytes(
        reserved_bytes=sum(each.size_bytes for each in counted),
        temp_bytes=sum(each.size_bytes for each in temporary),
        unused_bytes=sum(each.unused_bytes for each in temporary),
        allocations=len(counted),
    )


def schedulers(platform: str) -> tuple[Mapping[str, str], ...]:
    """Return each scheduler's compiler options, the default first."""
    return ({}, LEAST_MEMORY) if platform == "cpu" else ({},)


def _figures_of(executable: Any) -> CompiledFigures:
    stats = executable.memory_analysis()
    if stats is None:
        raise UnsupportedError("this backend does not report the memory of compiled functions; use CPU or GPU")
    return CompiledFigures(
        temp_bytes=int(stats.temp_size_in_bytes),
        argument_bytes=int(stats.argument_size_in_bytes),
        output_bytes=int(stats.output_size_in_bytes),
        alias_bytes=int(stats.alias_size_in_bytes),
    )
