"""A scan and the scan that reads, turn by turn in the other direction, what it saved: a loop and its backward pass."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.frameworks.jax.flat.program import FlatProgram, Value
from lowtide.frameworks.jax.reading.sizes import bytes_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPair:
    """A scan, its backward scan, and what only passes from one to the other."""

    forward: int
    """Position of the equation."""
    backward: int
    saved: tuple[Value, ...]
    """Stacks that the forward scan collects and nobody but the backward scan reads, turn by turn."""
    saved_bytes: int
    carry_bytes: int
    """Bytes of the forward scan's state."""
    length: int

    @property
    def chunk(self) -> int:
        """How many turns are computed again at once: the divisor of the length that keeps least.

        What is kept is the state at the begin of each chunk, and what one chunk saves.
        """
        divisors = [each for each in range(1, self.length) if self.length % each == 0]
        return min(divisors, key=lambda each: (self.kept_bytes(each), each))

    def kept_bytes(self, chunk: int) -> int:
        """Return the bytes that are kept with chunks of so many turns."""
        return self.length // chunk * self.carry_bytes + chunk * (self.saved_bytes // self.length)


def scan_pairs(program: FlatProgram) -> list[ScanPair]:
    """Return the pairs of scans in which something is to be saved, those that save most first. O(equations)."""
    readers: dict[Value, set[int]] = {}
    for position, equation in enumerate(program.equations):
        for value in equation.reads:
            readers.setdefault(value, set()).add(position)
    returned = {atom for atom in program.outputs if isinstance(atom, int)}
    pairs: list[ScanPair] = []
    for position, equation in enumerate(program.equations):
        if equation.kind != "scan" or equation.origin.effects:
            continue
        params = equation.origin.params
        stacks = [value for value in equation.outputs[params["num_carry"] :] if value not in returned]
        followers = {min(readers[value]) for value in stacks if len(readers.get(value, ())) == 1}
        for follower in sorted(followers):
            saved = tuple(value for value in stacks if readers.get(value) == {follower})
            if _goes_back(program, position, follower, saved):
                pairs.append(_pair(program, position, follower, saved))
    worth = [pair for pair in pairs if pair.kept_bytes(pair.chunk) < pair.saved_bytes]
    return sorted(worth, key=lambda pair: (pair.kept_bytes(pair.chunk) - pair.saved_bytes, pair.forward))


def apart(pairs: Sequence[ScanPair]) -> list[ScanPair]:
    """Return the pairs, best first, without those that share a scan with a better one."""
    taken: set[int] = set()
    kept: list[ScanPair] = []
    for pair in pairs:
        if taken.isdisjoint((pair.forward, pair.backward)):
            taken.update((pair.forward, pair.backward))
            kept.append(pair)
    return kept


def _goes_back(program: FlatProgram, forward: int, backward: int, saved: Sequence[Value]) -> bool:
    """Return whether an equation is a scan over the same turns the other way that takes all of these turn by turn."""
    one, other = program.equations[forward], program.equations[backward]
    if other.kind != "scan" or other.origin.effects:
        return False
    there, back = one.origin.params, other.origin.params
    if there["length"] != back["length"] or there["length"] < 2 or there["reverse"] == back["reverse"]:
        return False
    whole = other.inputs[: back["num_consts"] + back["num_carry"]]
    return not set(saved).intersection(atom for atom in whole if isinstance(atom, int))


def _pair(program: FlatProgram, forward: int, backward: int, saved: tuple[Value, ...]) -> ScanPair:
    params: Any = program.equations[forward].origin.params
    states = program.equations[forward].outputs[: params["num_carry"]]
    return ScanPair(
        forward=forward,
        backward=backward,
        saved=saved,
        saved_bytes=sum(bytes_of(program.types[value]) for value in saved),
        carry_bytes=sum(bytes_of(program.types[value]) for value in states),
        length=params["length"],
    )
