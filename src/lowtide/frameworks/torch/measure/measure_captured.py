"""Measure a captured program: peaks and a digest of its results."""

import hashlib
from collections.abc import Callable, Generator, Mapping, Sequence
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

_WARM_UP_CALLS = 2


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
    """Measure one call of an applied plan or of `captured.run_original`, by default after two warm-up calls.

    Inputs default to the example inputs. The call starts without gradients, from the present state, which is restored
    at the end. `keep_results` keeps copies of compared tensors; `last_digits` changes the last digit of every input and
    state number. Raises UnsupportedError without real inputs.
    """
    given = captured.example_args if args is None else args
    named = dict(captured.example_kwargs if kwargs is None else kwargs)
    inputs = check_real(given, named)
    device = inputs[0].device if inputs else torch.device("cpu")
    with restored_state(captured, inputs) as restore:
        for _ in range(_WARM_UP_CALLS if warm_up else 0):
            program(*given, **named)
            restore()
        if last_digits:
            with torch.no_grad():
                for tensor in {id(tensor): tensor for tensor in (*captured.persistent(), *inputs)}.values():
                    tensor.copy_(in_other_last_digits(tensor))
        on_host, (peak, result) = host_peak_of_call(
            lambda: peak_of_call(lambda: program(*given, **named), device), device
        )
        held = bytes_held_by(inputs)
        compared = pytree.tree_leaves([result, captured.binding.gradients(), captured.persistent(), inputs])
        digest = digest_of(compared)
        kept = [_copied(leaf) for leaf in compared] if keep_results else ()
    return MeasuredCall(
        peak_bytes=peak + held, host_peak_bytes=on_host, device=device, outputs_digest=digest, results=kept
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
    kept.put_back()
    try:
        yield kept.put_back
    finally:
        kept.put_back_with_gradients()
        captured.binding.dematerialize()


def _copied(leaf: Any) -> Any:
    return leaf.detach().cpu().clone() if isinstance(leaf, torch.Tensor) else leaf


def digest_of(leaves: Sequence[Any]) -> str:
    """Return a hash of the bits, types and shapes of tensors, and of the text of other values."""
    digest = hashlib.blake2b()
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            flat = leaf.detach().cpu().contiguous().reshape(-1)
            digest.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
            digest.update(flat.view(torch.uint8).numpy().data)
        else:
            digest.update(repr(leaf).encode())
    return digest.hexdigest()
