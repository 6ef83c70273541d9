"""Measure a captured program, and compare its results with the user's call."""

import hashlib
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.engine.planning.measured import Agreement
from lowtide.frameworks.outputs import compare_outputs
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.host_memory import is_on_host
from lowtide.frameworks.torch.internals.tensors import bytes_held_by
from lowtide.frameworks.torch.measure.allocation_events import host_peak_of_call, peak_of_call
from lowtide.frameworks.torch.measure.kept_state import KeptState
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.rounding import in_other_last_digits, largest_difference


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCall:
    peak_bytes: int
    """Of live tensors with inputs, without persistent tensors."""
    host_peak_bytes: int
    """Of copies and of state on the host."""
    device: torch.device
    outputs_digest: str
    """Of outputs, gradients, and final persistent tensors."""
    results: Sequence[Any] = ()


def measure_captured(
    captured: Captured,
    program: Callable[..., Any],
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    keep_results: bool = False,
    last_digits: bool = False,
    warm_up: bool = True,
) -> MeasuredCall:
    """Measure a call of an applied plan or `captured.run_original`, by default after a warm-up call.

    Inputs default to the example inputs. The call starts without gradients; the state is restored at the end.
    `keep_results` copies compared tensors; `last_digits` changes the last digit of each input and state number. Raises
    UnsupportedError without real inputs.
    """
    given = captured.example_args if args is None else args
    named = dict(captured.example_kwargs if kwargs is None else kwargs)
    inputs = check_real(given, named)
    with restored_state(captured, inputs) as restore:
        if warm_up:
            program(*given, **named)
            restore()
        if last_digits:
            with torch.no_grad():
                for tensor in {id(tensor): tensor for tensor in (*captured.persistent(), *inputs)}.values():
                    tensor.copy_(in_other_last_digits(tensor))
        return _measured(captured, lambda: program(*given, **named), inputs, keep_results=keep_results)


def measure_in_turn(
    captured: Captured, programs: Sequence[Callable[..., Any]], restore: Callable[[], None]
) -> list[MeasuredCall]:
    """Measure a call of each program after a warm-up call, from the same state."""
    args, kwargs = captured.example_args, captured.example_kwargs
    inputs = check_real(args, kwargs)
    calls: list[MeasuredCall] = []
    for program in programs:
        program(*args, **kwargs)
        restore()
        calls.append(_measured(captured, lambda program=program: program(*args, **kwargs), inputs))
        restore()
    return calls


def _measured(
    captured: Captured, call: Callable[[], Any], inputs: list[torch.Tensor], *, keep_results: bool = False
) -> MeasuredCall:
    device = inputs[0].device if inputs else torch.device("cpu")
    on_host, (peak, result) = host_peak_of_call(lambda: peak_of_call(call, device), device)
    compared = pytree.tree_leaves([result, captured.binding.gradients(), captured.persistent(), inputs])
    return MeasuredCall(
        peak_bytes=peak + bytes_held_by(inputs),
        host_peak_bytes=on_host + bytes_held_by(each for each in captured.persistent() if is_on_host(each, device)),
        device=device,
        outputs_digest=digest_of(compared),
        results=[_copied(leaf) for leaf in compared] if keep_results else (),
    )


def check_real(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return a call's input tensors. Raises UnsupportedError for a fake one."""
    inputs = pytree.tensors_in((args, dict(kwargs)))
    if any(map(is_fake, inputs)):
        raise UnsupportedError(
            "the program has no real inputs to measure; capture it with some, or load a trusted file with --trust "
            "(trust=True)"
        )
    return inputs


@contextmanager
def restored_state(captured: Captured, inputs: list[torch.Tensor]) -> Generator[Callable[[], None]]:
    """Save all state, yield a function that restores it, and restore gradients at the end."""
    captured.binding.materialize()
    kept = KeptState([*captured.persistent(), *inputs])
    kept.clear_gradients()

    def restore() -> None:
        kept.put_back()
        captured.binding.rewind()

    try:
        yield restore
    finally:
        kept.put_back_with_gradients()
        captured.binding.rewind()
        captured.binding.dematerialize()


def _copied(leaf: Any) -> Any:
    return leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf


def digest_of(leaves: Sequence[Any]) -> str:
    """Return a hash of tensors' bits, types and shapes, and of other values' text."""
    digest = hashlib.sha256()
    with ThreadPoolExecutor() as threads:
        for part in threads.map(_digest_of_leaf, leaves):
            digest.update(part)
    return digest.hexdigest()


def _digest_of_leaf(leaf: Any) -> bytes:
    if not isinstance(leaf, torch.Tensor):
        return hashlib.sha256(repr(leaf).encode()).digest()
    digest = hashlib.sha256(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
    flat = leaf.detach().cpu().contiguous().reshape(-1)
    digest.update(flat.view(torch.uint8).numpy().data)
    return digest.digest()


_Results = Sequence[Any]


def compare_with_plain(captured: Captured, programs: Sequence[Callable[..., Any]], *, may_round: bool) -> Agreement:
    """Run programs whose results differed from the user's call again, and return by how much they differ.

    If plans may round and differ by more, the user's call runs with inputs and state perturbed in the last place. The
    plan may differ by 64 times as much: optimizers divide gradients by their size, which enlarges differences.
    """

    def results(program: Callable[..., Any], *, last_digits: bool = False) -> _Results:
        return measure_captured(captured, program, keep_results=True, last_digits=last_digits, warm_up=False).results

    def run_plain() -> _Results:
        return results(captured.run_original)

    plain = run_plain()
    agreements: list[Agreement] = []
    for program in programs:
        planned = results(program)
        difference = largest_difference(plain, planned)
        is_near = may_round and difference.is_rounding
        if may_round and not is_near:
            usual = largest_difference(plain, results(captured.run_original, last_digits=True))
            is_near = difference.is_within_noise(usual)
        if is_near:
            agreement = Agreement(outputs_equal=False, largest_difference=difference.share, outputs_near=True)
        else:
            agreement = compare_outputs(plain, planned, run_plain, _difference)
        agreements.append(agreement)
    return max(agreements, key=lambda each: (each.verdict == "different", each.largest_difference or 0.0))


def _difference(one: _Results, other: _Results) -> float:
    if digest_of(one) == digest_of(other):
        return 0.0
    return max(largest_difference(one, other).share, sys.float_info.min)
