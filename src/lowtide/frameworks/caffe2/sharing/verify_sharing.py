"""Check that sharing changed only names, independently of the algorithms."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from lowtide.core.errors import VerificationError
from lowtide.core.index_spaces import OpId
from lowtide.frameworks.caffe2.sharing.named_net import BlobRange, NamedNet, NamedOp

_Source = tuple[str, int, int]


def verify_assignments(slots: Iterable[Sequence[BlobRange]]) -> None:
    """Raise VerificationError if a blob begins before the last use of the previous one in its slot."""
    for number, slot in enumerate(slots):
        for former, latter in pairwise(slot):
            if former.used is None or former.used >= latter.begins:
                raise VerificationError(
                    f"slot {number}: {latter.name!r} begins at {latter.begins} while {former.name!r} is used until "
                    f"{'the end' if former.used is None else former.used}; give them slots of their own"
                )


def verify_equality(before: NamedNet, after: NamedNet) -> None:
    """Raise VerificationError with the first difference if two nets compute different values. O(e).

    Every op must read the same outputs of the same ops, and external blobs must end with the same values.
    """
    if before.external_inputs != after.external_inputs or before.external_outputs != after.external_outputs:
        raise VerificationError("the nets have different external inputs or outputs; sharing must not rename them")
    _compare(before, after, "")


def verify_in_place(before: NamedNet, after: NamedNet) -> None:
    """Raise VerificationError if two nets use different blobs in place."""
    if len(before.ops) != len(after.ops):
        raise VerificationError(f"{len(before.ops)} ops before and {len(after.ops)} after; sharing must keep every op")
    for position, (former, latter) in enumerate(zip(before.ops, after.ops, strict=True)):
        if _in_place(former) != _in_place(latter):
            raise VerificationError(
                f"op {position} ({latter.kind}) uses other blobs in place than before; its inputs and outputs may not "
                "share"
            )
        for inner_before, inner_after in zip(former.step_nets, latter.step_nets, strict=True):
            verify_in_place(inner_before, inner_after)


def passes(check: Callable[[NamedNet, NamedNet], None], before: NamedNet, after: NamedNet) -> bool:
    try:
        check(before, after)
    except VerificationError:
        return False
    return True


def differ_only_in_names(before: NamedNet, after: NamedNet) -> bool:
    return passes(verify_equality, before, after) and passes(verify_in_place, before, after)


def _in_place(op: NamedOp) -> list[tuple[int, int]]:
    return [(place, op.outputs.index(blob)) for place, blob in enumerate(op.inputs) if blob in op.outputs]


def _compare(before: NamedNet, after: NamedNet, where: str) -> None:
    if len(before.ops) != len(after.ops):
        raise VerificationError(f"{where}{len(before.ops)} ops before and {len(after.ops)} after; keep every op")
    counts = (len(before.external_inputs), len(before.external_outputs))
    if counts != (len(after.external_inputs), len(after.external_outputs)):
        raise VerificationError(f"{where}the number of external inputs or outputs changed; keep all of them")
    tables = _Sources(before), _Sources(after)
    for position, (former, latter) in enumerate(zip(before.ops, after.ops, strict=True)):
        here = f"{where}op {position} ({former.kind})"
        if _settings(former) != _settings(latter):
            raise VerificationError(f"{here} is {latter.kind!r} with other settings after; sharing must keep every op")
        if tables[0].of(before.reads[position]) != tables[1].of(after.reads[position]):
            raise VerificationError(f"{here} reads other values than before; two live values share a name")
        written = before.writes[position], after.writes[position]
        if len(written[0]) != len(written[1]) or len(former.outputs) != len(latter.outputs):
            raise VerificationError(f"{here} writes two values under one name; give each output its own name")
        for table, names in zip(tables, written, strict=True):
            table.write(position, names)
        for number, (inner_before, inner_after) in enumerate(zip(former.step_nets, latter.step_nets, strict=True)):
            _compare(inner_before, inner_after, f"{here}, step net {number}: ")
    ends = (before.external_inputs + before.external_outputs, after.external_inputs + after.external_outputs)
    if tables[0].of(ends[0]) != tables[1].of(ends[1]):
        raise VerificationError(f"{where}an external input or output ends with another value; it must not share")


def _settings(op: NamedOp) -> tuple[object, ...]:
    return op.kind, op.name, op.device, op.is_gradient, op.after, len(op.inputs), len(op.step_nets)


class _Sources:
    def __init__(self, net: NamedNet) -> None:
        self._latest: dict[str, _Source] = {
            name: ("external", place, 0) for place, name in enumerate(net.external_inputs)
        }
        self._unknown = 0

    def of(self, names: Iterable[str]) -> list[_Source]:
        result: list[_Source] = []
        for name in names:
            if name not in self._latest:
                self._latest[name] = ("unknown", self._unknown, 0)
                self._unknown += 1
            result.append(self._latest[name])
        return result

    def write(self, op: OpId, names: Iterable[str]) -> None:
        for place, name in enumerate(names):
            self._latest[name] = ("op", op, place)
