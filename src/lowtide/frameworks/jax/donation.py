"""Arguments that a caller may give up: results of the same shape and type can lie where they lay."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.core.units import format_bytes
from lowtide.frameworks.jax.flat.traced import TracedFunction, trace
from lowtide.frameworks.jax.internals import keystr, tree_paths
from lowtide.frameworks.jax.reading.sizes import bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Donation:
    """What `jax.jit(function, donate_argnums=...)` could name; legal where the caller does not use it afterwards."""

    argnums: tuple[int, ...]
    """Positional arguments whose every array has a result to give its storage to."""
    saved_bytes: int
    """Bytes of the results that then need none of their own."""
    others: tuple[str, ...]
    """Single arrays within other arguments that match a result too."""

    def __str__(self) -> str:
        if not self.saved_bytes:
            return "no argument matches a result, so nothing is to be donated"
        lines: list[str] = []
        if self.argnums:
            lines.append(
                f"donate_argnums={self.argnums} would save {format_bytes(self.saved_bytes)} of results, if the caller "
                "does not use these arguments again"
            )
        if self.others:
            lines.append(f"matching arrays in other arguments: {', '.join(self.others[:6])}")
        return "\n".join(lines)


def suggest_donation(
    function: Callable[..., Any], example_args: Sequence[Any], example_kwargs: Mapping[str, Any] | None = None
) -> Donation:
    """Return which arguments of a function match its results in shape and type, and are not donated yet.

    Each result takes the storage of one argument. Raises UsageError where the function cannot be traced.
    """
    traced = trace(function, example_args, example_kwargs)
    free = _free_results(traced)
    leaves, _ = tree_paths((tuple(example_args), dict(example_kwargs or {})))
    by_argument: dict[int, list[tuple[str, Any]]] = {}
    for (path, _), struct, donated in zip(leaves, traced.structs, traced.donated, strict=True):
        number = path[1].idx if path[0].idx == 0 else -1
        if not donated:
            by_argument.setdefault(number, []).append((keystr(path[1:]), struct))
    argnums: list[int] = []
    others: list[str] = []
    saved = 0
    for number, arrays in by_argument.items():
        wanted = Counter(_form(struct) for _, struct in arrays)
        if number >= 0 and wanted <= free:
            free -= wanted
            argnums.append(number)
            saved += sum(bytes_of(struct) for _, struct in arrays)
    for number, arrays in by_argument.items():
        for name, struct in arrays if number not in argnums else ():
            if struct.shape and free[_form(struct)] > 0:
                free[_form(struct)] -= 1
                others.append(name)
    return Donation(argnums=tuple(argnums), saved_bytes=saved, others=tuple(others))


def _free_results(traced: TracedFunction) -> Counter[Any]:
    """Count the forms of results that no donated argument has given its storage to, and that are no argument itself."""
    inputs = set(map(id, traced.jaxpr.jaxpr.invars))
    results = [var.aval for var in traced.jaxpr.jaxpr.outvars if id(var) not in inputs]
    given = Counter(_form(struct) for struct, donated in zip(traced.structs, traced.donated, strict=True) if donated)
    return Counter(map(_form, results)) - given


def _form(struct: Any) -> tuple[tuple[int, ...], str]:
    return tuple(struct.shape), str(struct.dtype)
