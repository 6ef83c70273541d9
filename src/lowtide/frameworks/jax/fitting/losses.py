"""A loss and its backward pass as one function."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from lowtide.core.errors import UsageError
from lowtide.frameworks.jax.flat.traced import TracedFunction
from lowtide.frameworks.jax.internals import is_differentiable, is_floating, jax, jaxpr_as_fun

Wanted = tuple[bool, ...]


def is_loss(traced: TracedFunction) -> bool:
    results = traced.jaxpr.out_avals
    return len(results) == 1 and results[0].shape == () and is_floating(results[0].dtype)


def wanted_leaves(traced: TracedFunction, args: Sequence[int]) -> Wanted:
    """Return which leaves of these arguments are floating-point arrays; raises UsageError for none."""
    positional, _ = traced.in_tree.children()
    counts = [child.num_leaves for child in positional.children()]
    if not all(0 <= each < len(counts) for each in args):
        raise UsageError(f"argnums {tuple(args)} is out of range; there are {len(counts)} example arguments")
    owners = [number for number, count in enumerate(counts) for _ in range(count)]
    owners += [-1] * (len(traced.structs) - len(owners))
    wanted = tuple(
        owner in args and is_differentiable(struct.dtype) for owner, struct in zip(owners, traced.structs, strict=True)
    )
    if not any(wanted):
        raise UsageError(f"argnums {tuple(args)} has no floating-point arrays to differentiate")
    return wanted


def with_backward(traced: TracedFunction, wanted: Wanted) -> TracedFunction:
    """Return a function of arguments and cotangents that returns results and wanted gradients."""
    count = len(wanted)
    places = [place for place, each in enumerate(wanted) if each]
    smooth = [place for place, aval in enumerate(traced.jaxpr.out_avals) if is_differentiable(aval.dtype)]
    body: Callable[..., Sequence[Any]] = jaxpr_as_fun(traced.jaxpr)

    def joint(*values: Any) -> list[Any]:
        leaves, cotangents = list(values[:count]), values[count:]

        def of_wanted(*chosen: Any) -> tuple[list[Any], list[Any]]:
            merged = list(leaves)
            for place, leaf in zip(places, chosen, strict=True):
                merged[place] = leaf
            results = list(body(*merged))
            return [results[place] for place in smooth], results

        _, pull, results = jax.vjp(of_wanted, *(leaves[place] for place in places), has_aux=True)
        return [*results, *pull(list(cotangents))]

    results = traced.jaxpr.out_avals
    structs = (*traced.structs, *(jax.ShapeDtypeStruct(results[n].shape, results[n].dtype) for n in smooth))
    return replace(
        traced,
        name=f"{traced.name} with its backward pass",
        jaxpr=jax.make_jaxpr(joint)(*structs),
        structs=structs,
        donated=(False,) * len(structs),
        shardings=None,
    )
