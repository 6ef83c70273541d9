"""Random NetDefs that run: branches, ops in place, blobs written anew, several outputs."""

import random
from dataclasses import dataclass, field

import numpy as np

from lowtide.caffe2 import Argument, NetDef, OperatorDef

SIZE = 4
IN_PLACE = ("Relu", "Sigmoid", "Tanh", "Negative")
ONE_INPUT = (*IN_PLACE, "Copy", "Softmax")
TWO_INPUTS = ("Add", "Sub", "Mul", "Sum")


@dataclass
class RandomNet:
    """A net, the shapes of its blobs from outside, and contents for them."""

    net: NetDef
    shapes: dict[str, list[int]] = field(default_factory=dict)

    def inputs(self) -> dict[str, np.ndarray]:
        """Return contents for the blobs from outside."""
        rng = np.random.default_rng(1)
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in self.shapes.items()}


def random_netdef(rng: random.Random, n_ops: int) -> RandomNet:
    """Return a net of square blobs, and of halves of them, that any op may read."""
    made = RandomNet(NetDef(name="random", type=rng.choice(("simple", "dag")), num_workers=4))
    for name in ("x", "w"):
        made.net.external_input.append(name)
        made.shapes[name] = [SIZE, SIZE]
    whole, written = ["x", "w"], list[str]()
    for place in range(n_ops):
        kind = rng.random()
        read = rng.choices(whole[-5:], k=2)
        in_place = read[0] in written and rng.random() < 0.2
        anew = written and rng.random() < 0.1
        name = read[0] if in_place else rng.choice(written) if anew else f"b{place}"
        if kind < 0.45:
            kinds = ONE_INPUT if name != read[0] else IN_PLACE
            op = OperatorDef(type=rng.choice(kinds), input=read[:1], output=[name])
        elif kind < 0.8:
            read.sort(key=lambda blob: blob != name)  # a sum may write over its first input only
            kinds = TWO_INPUTS if read[1] != name else TWO_INPUTS[:3]
            op = OperatorDef(type=rng.choice(kinds), input=read, output=[name])
        elif kind < 0.9:
            parts = [f"b{place}.{half}" for half in "ab"]
            made.net.op.append(
                OperatorDef(type="Split", input=read[:1], output=parts, arg=[Argument(name="axis", i=1)])
            )
            name = f"b{place}"
            joined = rng.sample(parts, 2)
            op = OperatorDef(type="Concat", input=joined, output=[name, f"{name}.n"], arg=[Argument(name="axis", i=1)])
        else:
            op = OperatorDef(type="MatMul", input=read, output=[f"b{place}"])
            name = f"b{place}"
        if written and rng.random() < 0.1:
            op.control_input.append(rng.choice(written))
        made.net.op.append(op)
        whole += [name] if name not in whole else []
        written += [name] if name not in written else []
    made.net.external_output.extend(dict.fromkeys([written[-1], rng.choice(written)]))
    return made
