"""Which results Inductor's kernels may write over what they read last."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from collections.abc import Iterator
from typing import Any

from torch._inductor.codegen.wrapper import can_match_buffer_size
from torch._inductor.dependencies import WeakDep
from torch._inductor.ir import CommBufferLayout, FallbackKernel, MultiOutput, MultiOutputLayout, NoneLayout
from torch._inductor.scheduler import SchedulerNode
from torch._inductor.virtualized import V

from lowtide.frameworks.torch.internals.kernels import has_code, is_kept_by_rows


def forget_mere_order() -> None:
    """Let whatever only comes after a kernel count as no use of what that makes; the order itself stays known.

    What overwrites an operand of a product waits for the product. Inductor takes it for a reader of the result, over
    which nothing is written then.
    """
    for name, buffer in V.graph.scheduler.name_to_buf.items():
        buffer.users = [user for user in buffer.users if not (user.is_weak and _only_waits(user.node, name))]


def _only_waits(node: Any, name: str) -> bool:
    known = [each for each in (*node.read_writes.reads, *node.unmet_dependencies) if each.name == name]
    return bool(known) and all(isinstance(each, WeakDep) and each.is_fake for each in known)


def pairs_in_place(node: Any) -> Iterator[tuple[str, str]]:
    """Yield the pairs (read buffer, written buffer) that share storage if the kernel is the last to read the former.

    Follows what Inductor's scheduler decides while it writes a kernel; a buffer is in one pair at most.
    """
    used: set[str] = set()
    made = (buffer for part in node.get_nodes() for buffer in part.get_outputs())
    # a row of its own lies over nothing, and nothing is written over it
    rows = {buffer.get_name() for buffer in made if is_kept_by_rows(buffer, node)}
    for part in node.get_nodes():
        if not isinstance(part, SchedulerNode):
            continue
        for buffer in part.get_outputs():
            if buffer.get_name() not in rows and _is_made_here(buffer):
                reads = [read.name for read in part.read_writes.reads if read.name not in used | rows]
                candidates = map(_buffer, reads)
                for given in candidates:
                    if given is not None and _may_take_over(given, buffer, part, node):
                        used.add(given.get_name())
                        yield given.get_name(), buffer.get_name()
                        break


def _accesses(name: str, node: Any) -> set[Any]:
    """Return the different ways in which the parts of a kernel read and write a buffer."""
    accesses = (access for part in node.get_nodes() for access in part.read_writes.reads_and_writes())
    return {access for access in accesses if access.name == name}


def _buffer(name: str) -> Any:
    scheduler = V.graph.scheduler
    return scheduler.name_to_donated_buffer.get(name) or scheduler.name_to_buf.get(name)


def _is_made_here(buffer: Any) -> bool:
    made = buffer.node
    return bool(made.should_allocate()) and not made.get_inputs_that_alias_output() and not made.get_mutation_names()


def _may_take_over(given: Any, buffer: Any, part: Any, node: Any) -> bool:
    if given.node is None or not has_code(given.defining_op):
        return False
    if isinstance(given.node.get_output_spec(), NoneLayout | MultiOutputLayout | CommBufferLayout):
        return False
    maker = getattr(given.defining_op, "node", None)
    if isinstance(maker, FallbackKernel | MultiOutput) and given.node.get_inputs_that_alias_output():
        return False
    last = [user for user in given.users if user.node is part]
    if any(user.is_weak and user.node is not part for user in given.users):
        return False  # what overwrites an operand of its maker waits for it, and counts as a use to come
    return (
        len(last) == 1
        and last[0].can_inplace
        and can_match_buffer_size(given.node, buffer.node)
        and _is_last_and_alike(given, part, node)
    )


def _is_last_and_alike(given: Any, part: Any, node: Any) -> bool:
    """Tell whether, within a fused kernel, a part needs all else that reads a buffer, and all read it alike.

    What comes before the part counts as done only there: nothing of the kernel is, while Inductor writes it.
    """
    others = {each.get_name() for each in node.get_nodes() if each is not part} - set(part.ancestors)
    return len(_accesses(given.get_name(), node)) == 1 and not any(
        user.node.get_name() in others for user in given.users
    )
