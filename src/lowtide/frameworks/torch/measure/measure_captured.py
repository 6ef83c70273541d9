"""Measure a captured program: peaks and a digest of its results."""

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import is_fake
from lowtide.frameworks.torch.internals.tensors import bytes_held_by
from lowtide.frameworks.torch.measure.allocation_events import host_peak_of_call, peak_of_call
from lowtide.frameworks.torch.measure.kept_state import KeptState
from lowtide.frameworks.torch.reading.captured import Captured
from lowtide.frameworks.torch.rewrites.chunks.rounding import in_other_last_digits


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCall:
    peak_bytes: int
    """Live tensor bytes with inputs, without persistent tensors."""
    host_peak_bytes: int
    """Bytes of copies on the host."""
    device: torch.device
    """The device of the inputs, whose memory was measured."""
    outputs_digest: str
    """Digest of outputs, gradients, and persistent tensors after the call."""
    results: Sequence[Any] = ()
    """These tensors, if requested by `keep_results`."""


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
    """Measure one call of an applied plan or of `captured.run_original`, by default after a warm-up call.

    Inputs default to the example inputs. The call starts without gradients, from the present state, which is restored
    at the end. `keep_results` keeps copies of compared tensors; `last_digits` changes the last digit of every input and
    state number. Raises UnsupportedError without real inputs.
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
    """Measure one call of each program on the example inputs, after a warm-up call, and restore state after each."""
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
    """Measure a call from the present state."""
    device = inputs[0].device if inputs else torch.device("cpu")
    on_host, (peak, result) = host_peak_of_call(lambda: peak_of_call(call, device), device)
    compared = pytree.tree_leaves([result, captured.binding.gradients(), captured.persistent(), inputs])
    return MeasuredCall(
        peak_bytes=peak + bytes_held_by(inputs),
        host_peak_bytes=on_host,
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
    try:
        yield kept.put_back
    finally:
        kept.put_back_with_gradients()
        captured.binding.dematerialize()


def _copied(leaf: Any) -> Any:
    return leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf


def digest_of(leaves: Sequence[Any]) -> str:
    """Return a hash of the bits, types and shapes of tensors, and of the text of other values.

    Tensors are hashed in several threads.
    """
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
