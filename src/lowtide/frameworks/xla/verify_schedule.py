"""The check of a schedule in the text: it knows nothing of graphs and plans."""

from lowtide.core.errors import VerificationError
from lowtide.frameworks.xla.text.module import Computation, HloModule


def verify_schedule(module: HloModule, original: HloModule | None = None) -> None:
    """Prove that a module is scheduled: every computation, operands before users, control edges kept. O(n + e).

    With `original`, every computation must have the instructions of that module's, each with its operands, attributes
    and shape. Raises VerificationError with the first instruction that is wrong.
    """
    if not module.is_scheduled:
        raise VerificationError(f"module {module.name!r} is not scheduled: it does not say is_scheduled=true")
    for computation in module.computations:
        _check_order(computation)
    if original is None:
        return
    if list(module.by_name) != list(original.by_name):
        raise VerificationError(f"module {module.name!r} has other computations than the original")
    for name, computation in module.by_name.items():
        _check_same(computation, original.by_name[name])


def _check_order(computation: Computation) -> None:
    for place, instruction in enumerate(computation.instructions):
        for kind, names in (("operand", instruction.operands), ("control", instruction.control_predecessors)):
            for name in names:
                if computation.positions.get(name, place) >= place:
                    raise VerificationError(
                        f"computation {computation.name!r}: instruction {instruction.name!r} comes before its {kind} "
                        f"predecessor {name!r}"
                    )


def _check_same(computation: Computation, original: Computation) -> None:
    for name in original.positions.keys() ^ computation.positions.keys():
        raise VerificationError(f"computation {computation.name!r}: instruction {name!r} is in one of the modules only")
    for name, place in computation.positions.items():
        now, before = computation.instructions[place], original.instructions[original.positions[name]]
        if now is before:
            continue
        same = (now.opcode, now.shape_text, now.operands, set(now.control_predecessors)) == (
            before.opcode,
            before.shape_text,
            before.operands,
            set(before.control_predecessors),
        )
        if not same:
            raise VerificationError(
                f"computation {computation.name!r}: instruction {name!r} is another one than before"
            )
    if computation.instructions[computation.root].name != original.instructions[original.root].name:
        raise VerificationError(f"computation {computation.name!r} has another root than before")
