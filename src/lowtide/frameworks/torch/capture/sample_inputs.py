"""The call that an exported program was exported with, also where nobody read what was pickled of it."""

from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind

from lowtide.core.errors import UnsupportedError
from lowtide.frameworks.torch.internals import pytree
from lowtide.frameworks.torch.internals.fake_tensors import FakeMode, new_fake_mode
from lowtide.frameworks.torch.internals.hints import hinted_value_of


def sample_inputs(program: ExportedProgram) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return arguments and keyword arguments to capture an exported program with.

    They are its example inputs where it has some. Else they are fake tensors of the forms that its graph gives them,
    with dynamic sizes as they were exported; such a program can be planned, and needs real inputs to run. Raises
    UnsupportedError for an input that is neither a tensor nor a plain value.
    """
    if program.example_inputs is not None:
        args, kwargs = program.example_inputs
        return tuple(args), dict(kwargs)
    placeholders = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    mode = new_fake_mode()
    leaves = [
        given.arg.value
        if isinstance(given.arg, ConstantArgument)
        else _like(hinted_value_of(placeholders[given.arg.name]), given.arg.name, mode)
        for given in program.graph_signature.input_specs
        if given.kind == InputKind.USER_INPUT
    ]
    spec = program.call_spec.in_spec
    if spec is None:
        raise UnsupportedError("the exported program does not say how it is called; export it again")
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    return args, kwargs


def _like(value: Any, name: str, mode: FakeMode) -> Any:
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        with mode:
            fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
        return fake.requires_grad_(value.requires_grad)
    if value is None or isinstance(value, int | float | bool | str):
        return value
    raise UnsupportedError(
        f"input {name!r} of the exported program is neither a strided tensor nor a plain value; load the file with "
        "its sample inputs, with --trust (trust=True)"
    )
