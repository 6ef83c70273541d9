"""Names for the storage that a plan gives to buffers: single assignment taken back to blobs that are written again."""

from lowtide.engine.plan import Free, Plan, Run
from lowtide.frameworks.caffe2.reading.translation import NetTranslation


def storage_names(translation: NetTranslation, plan: Plan) -> list[str]:
    """Return the name of every buffer's storage under a plan.

    A buffer that takes over another one's storage has its name. What the caller looks for keeps its name, and so does
    everything else unless another buffer of that name is live at the same time.
    """
    blobs, fixed = translation.blobs, translation.fixed
    block, spans = _stays(translation, plan)
    members: dict[int, list[int]] = {}
    for buffer in sorted(range(len(blobs)), key=lambda buffer: spans[buffer][0]):
        members.setdefault(block[buffer], []).append(buffer)
    taken: dict[str, list[tuple[int, int]]] = {}
    given = set(blobs)
    names = list(blobs)
    for buffers in sorted(members.values(), key=fixed.isdisjoint):
        name = wanted = next((blobs[buffer] for buffer in buffers if buffer in fixed), blobs[buffers[0]])
        first, last = spans[buffers[0]][0], max(spans[buffer][1] for buffer in buffers)
        number = 2
        while any(first <= end and begin <= last for begin, end in taken.get(name, [])):
            name = f"{wanted}__v{number}"
            while name in given:
                name += "_"
            number += 1
        taken.setdefault(name, []).append((first, last))
        for buffer in buffers:
            names[buffer] = name
    return names


def single_names(translation: NetTranslation) -> list[str]:
    """Return a name for every buffer that no other has; those that the caller looks for have their blob's."""
    blobs, fixed = translation.blobs, translation.fixed
    taken = {blobs[buffer] for buffer in fixed}
    names = list(blobs)
    for buffer, blob in enumerate(blobs):
        number = 1
        while buffer not in fixed and names[buffer] in taken:
            names[buffer] = f"{blob}#{number}"
            number += 1
        taken.add(names[buffer])
    return names


def _stays(translation: NetTranslation, plan: Plan) -> tuple[list[int], list[tuple[int, int]]]:
    """Return per buffer the first one of its storage, and the steps from the first to the last that it is there."""
    n_buffers = translation.graph.n_buffers
    block = list(range(n_buffers))
    first = [-1] * n_buffers
    last = [len(plan.kinds)] * n_buffers
    for moment, step in enumerate(plan.steps()):
        if isinstance(step, Run):
            for read, written in step.pairs:
                block[written] = block[read]
                last[read] = moment
            for buffer in translation.graph.writes[step.op]:
                first[buffer] = moment
        elif isinstance(step, Free) and step.buffer not in translation.fixed:
            last[step.buffer] = moment
    return block, list(zip(first, last, strict=True))
