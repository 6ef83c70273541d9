"""The archive behind a .pt2 file: its members as PyTorch itself sees them, and loading without running what is pickled.

`torch.export.load` falls back to unrestricted pickle wherever the restricted one refuses, and to an older format
wherever the new one fails; neither happens here.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive._package import load_pt2

_RESTRICTED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def archive_members(path: Path) -> tuple[list[str], PT2ArchiveReader]:
    """Return the names of an archive's members, and what reads them with `read_bytes`."""
    reader = PT2ArchiveReader(str(path))
    return reader.get_file_names(), reader


def load_without_pickle(path: Path) -> ExportedProgram:
    """Load an exported program; pickled members may hold tensors and plain values only, whatever asks for them.

    Raises pickle.UnpicklingError for others, and whatever else a damaged archive makes the loader stumble over.
    """
    with _restricted_pickle():
        return load_pt2(str(path)).exported_programs["model"]


def is_operator(target: str) -> bool:
    """Tell whether "torch.ops.NAMESPACE.NAME[.OVERLOAD]" is an operator that PyTorch knows."""
    found: object = torch
    for part in target.split(".")[1:]:
        found = getattr(found, part, None)
    return isinstance(found, OpOverload | HigherOrderOperator)


def has_fixed_sizes(program: ExportedProgram) -> bool:
    """Tell whether no size of an exported program is dynamic."""
    return not program.range_constraints


@contextmanager
def _restricted_pickle() -> Generator[None]:
    """Hold every `torch.load` to `weights_only`, also those that say otherwise."""
    before = os.environ.get(_RESTRICTED)
    os.environ[_RESTRICTED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RESTRICTED]
        else:
            os.environ[_RESTRICTED] = before
