"""Nets over named blobs for the tests of sharing, and oracles that know nothing of how sharing is done."""

import random
from collections.abc import Sequence

from lowtide.share import NamedNet, NamedOp

Term = tuple[object, ...]


def random_net(seed: int, *, most_ops: int = 16) -> NamedNet:
    """Return the net of a seed: in-place ops, second writers, control edges, externals, devices, sizes or none."""
    rng = random.Random(seed)
    external = [f"in{k}" for k in range(rng.randint(0, 3))]
    available = [*external, *(["stray"] if rng.random() < 0.2 else [])]
    produced: list[str] = []
    devices = rng.choice(([None], [None], ["cpu", "gpu"]))
    ops: list[NamedOp] = []
    for op in range(rng.randint(1, most_ops)):
        inputs = rng.choices(available[-7:], k=rng.choice((0, 1, 1, 1, 2, 2, 3))) if available else []
        outputs = [blob for blob in dict.fromkeys(inputs) if rng.random() < 0.08]
        outputs += [f"b{op}.{k}" for k in range(rng.choice((0, 1, 1, 2)) if outputs else rng.choice((1, 1, 1, 2)))]
        if produced and rng.random() < 0.05:
            outputs = list(dict.fromkeys([*outputs, rng.choice(produced)]))
        ops.append(
            NamedOp(
                kind=rng.choice(("FC", "Relu", "Sum")),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                device=rng.choice(devices),
                after=(rng.randrange(op),) if op and rng.random() < 0.05 else (),
            )
        )
        available += [blob for blob in outputs if blob not in available]
        produced += [blob for blob in outputs if blob not in produced]
    sizes = {blob: rng.choice((0, 1, 2, 8, 8, 50)) for blob in available} if rng.random() < 0.6 else {}
    return NamedNet(
        ops=tuple(ops),
        external_inputs=tuple(external),
        external_outputs=tuple(blob for blob in produced if rng.random() < 0.1),
        sizes=sizes,
    )


def training_net(n_layers: int, *, scope: str = "name_x/", first_on_gpu: int = 0) -> NamedNet:
    """Return fully connected layers, a loss and their gradients, named as Caffe2 names them.

    The first so many layers are on a GPU, and what they hand on is copied.
    """
    forward: list[NamedOp] = []
    backward: list[NamedOp] = []
    copied: dict[str, str] = {}
    former = f"{scope}data"

    def add(kind: str, inputs: Sequence[str], outputs: Sequence[str], gradients: Sequence[str], device: str) -> None:
        grads = tuple(f"{blob}_grad" for blob in gradients)
        from_above = tuple(f"{blob}_grad" for blob in outputs)
        forward.append(NamedOp(kind=kind, inputs=tuple(inputs), outputs=tuple(outputs), device=device))
        reads = (*inputs, *outputs, *from_above)
        backward.insert(
            0, NamedOp(kind=f"{kind}Gradient", inputs=reads, outputs=grads, device=device, is_gradient=True)
        )

    for layer in range(1, n_layers + 1):
        device = "gpu" if layer <= first_on_gpu else "cpu"
        name = f"{scope}fc{layer}"
        add("FC", (former, f"{name}_w", f"{name}_b"), (name,), (f"{name}_w", f"{name}_b", former), device)
        former = name
        if layer == first_on_gpu:
            former = f"{name}_cpu"
            add("CopyGPUToCPU", (name,), (former,), (name,), "gpu")
            copied |= {former: "cpu", f"{former}_grad": "cpu", f"{name}_grad": "gpu"}
    add("Softmax", (former,), (f"{scope}pred",), (former,), "cpu")
    add("LabelCrossEntropy", (f"{scope}pred", "label"), (f"{scope}xent",), (f"{scope}pred",), "cpu")
    add("AveragedLoss", (f"{scope}xent",), (f"{scope}loss",), (f"{scope}xent",), "cpu")
    seed = NamedOp(kind="ConstantFill", inputs=(f"{scope}loss",), outputs=(f"{scope}loss_grad",), device="cpu")
    parameters = [f"{scope}fc{layer}_{part}" for layer in range(1, n_layers + 1) for part in "wb"]
    return NamedNet(
        ops=(*forward, seed, *backward),
        external_inputs=(f"{scope}data", "label", *parameters),
        external_outputs=(f"{scope}loss", *(f"{name}_grad" for name in parameters)),
        blob_devices=copied,
    )


def waits(net: NamedNet) -> list[set[int]]:
    """Per op, all ops before it in every execution: whoever touches a blob waits for its writers before, and a writer
    for all that touched it before."""
    result: list[set[int]] = []
    for later, op in enumerate(net.ops):
        before = set(op.after)
        for earlier, other in enumerate(net.ops[:later]):
            if set(other.outputs) & {*op.inputs, *op.outputs} or set(other.inputs) & set(op.outputs):
                before.add(earlier)
        result.append(before.union(*(result[earlier] for earlier in before)))
    return result


def touches(net: NamedNet) -> dict[str, set[int]]:
    """Per blob, the ops that read or write it."""
    result: dict[str, set[int]] = {}
    for position, op in enumerate(net.ops):
        for blob in (*op.inputs, *op.outputs):
            result.setdefault(blob, set()).add(position)
    return result


def random_execution(net: NamedNet, rng: random.Random) -> list[int]:
    """Return an order in which an executor that runs branches at once might finish the ops."""
    before = waits(net)
    order: list[int] = []
    while len(order) < len(net.ops):
        ready = [op for op in range(len(net.ops)) if op not in order and before[op] <= set(order)]
        order.append(rng.choice(ready))
    return order


def read_terms(net: NamedNet, order: Sequence[int], initial: dict[str, str]) -> tuple[list[list[Term]], list[Term]]:
    """Run a net on symbols; returns what every op reads, and what external blobs hold in the end.

    `initial` says for a blob of this net by what name its first contents are known.
    """
    contents: dict[str, Term] = {}
    reads: list[list[Term]] = [[] for _ in net.ops]
    for position in order:
        op = net.ops[position]
        reads[position] = [contents.get(blob, ("at start", initial.get(blob, blob))) for blob in op.inputs]
        contents.update({blob: (position, place) for place, blob in enumerate(op.outputs)})
    externals = (*net.external_inputs, *net.external_outputs)
    return reads, [contents.get(blob, ("at start", initial.get(blob, blob))) for blob in externals]


def same_values(before: NamedNet, after: NamedNet, order: Sequence[int]) -> bool:
    """Whether every op of `after`, run in an order, reads what it reads in `before` run as it stands."""
    wanted, at_end = read_terms(before, range(len(before.ops)), {})
    first_names: dict[str, str] = {}
    for former, latter in zip(before.ops, after.ops, strict=True):
        for blob, name in zip(former.inputs, latter.inputs, strict=True):
            first_names.setdefault(name, blob)
    found, found_at_end = read_terms(after, order, first_names)
    return wanted == found and at_end == found_at_end
