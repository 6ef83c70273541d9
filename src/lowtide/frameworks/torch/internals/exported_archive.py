"""The archive behind a .pt2 file: its members as PyTorch itself sees them, and loading without running what is pickled.

`torch.export.load` unpickles sample inputs, falls back to unrestricted pickle wherever the restricted one refuses, and
to an older format wherever the new one fails; nothing of that happens here.
"""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive._package import _load_exported_programs
from torch.export.pt2_archive.constants import ARCHIVE_VERSION_PATH, ARCHIVE_VERSION_VALUE, SAMPLE_INPUTS_DIR

_RESTRICTED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def archive_members(path: Path) -> tuple[list[str], PT2ArchiveReader]:
    """Return the names of an archive's members, and what reads them with `read_bytes`."""
    reader = PT2ArchiveReader(str(path))
    return reader.get_file_names(), reader


def load_without_pickle(path: Path) -> ExportedProgram:
    """Load an exported program without its sample inputs, from an archive whose configurations name no other pickle.

    Raises whatever a damaged archive makes the loader stumble over.
    """
    with _ReaderWithoutSamples(str(path)) as reader, _restricted_pickle():
        version = reader.read_string(ARCHIVE_VERSION_PATH)
        if version != ARCHIVE_VERSION_VALUE:
            raise ValueError(f"its archive has version {version}, this PyTorch reads {ARCHIVE_VERSION_VALUE}")
        return _load_exported_programs(reader, reader.get_file_names(), None)["model"]


class _ReaderWithoutSamples(PT2ArchiveReader):
    """Reads sample inputs, which are pickled, as empty; PyTorch's loader then takes the program to have none."""

    def read_bytes(self, name: str) -> bytes:
        return b"" if name.startswith(SAMPLE_INPUTS_DIR) else super().read_bytes(name)


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
    """Hold every `torch.load` to `weights_only`, also those that say otherwise; here none is expected."""
    before = os.environ.get(_RESTRICTED)
    os.environ[_RESTRICTED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RESTRICTED]
        else:
            os.environ[_RESTRICTED] = before
