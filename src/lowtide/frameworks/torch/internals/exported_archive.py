"""The archive of a .pt2 file: its members, and loading it without running pickled code.

`torch.export.load` unpickles sample inputs. It also falls back to unrestricted pickle and to an older format. This
loader does neither.
"""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

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
    """Return the member names of an archive, and a reader with `read_bytes`."""
    reader = PT2ArchiveReader(str(path))
    return reader.get_file_names(), reader


def load_without_pickle(path: Path) -> ExportedProgram:
    """Load an exported program without its sample inputs.

    The configurations in the archive must refer to no pickle. Damaged archives raise various errors of the loader.
    """
    with _ReaderWithoutSamples(str(path)) as reader, _restricted_pickle():
        version = reader.read_string(ARCHIVE_VERSION_PATH)
        if version != ARCHIVE_VERSION_VALUE:
            raise ValueError(f"the archive has version {version}; this PyTorch reads {ARCHIVE_VERSION_VALUE}")
        return _load_exported_programs(reader, reader.get_file_names(), None)["model"]


class _ReaderWithoutSamples(PT2ArchiveReader):
    """Reads pickled sample inputs as empty, so that PyTorch's loader finds none."""

    def read_bytes(self, name: str) -> bytes:
        return b"" if name.startswith(SAMPLE_INPUTS_DIR) else super().read_bytes(name)


def is_operator(target: str) -> bool:
    """Return whether "torch.ops.NAMESPACE.NAME[.OVERLOAD]" names an existing operator."""
    found: object = torch
    for part in target.split(".")[1:]:
        found = getattr(found, part, None)
    return isinstance(found, OpOverload | HigherOrderOperator)


def has_fixed_sizes(program: ExportedProgram) -> bool:
    """Return whether all sizes of an exported program are fixed."""
    return not program.range_constraints


@contextmanager
def _restricted_pickle() -> Generator[None]:
    """Force `weights_only` on every `torch.load` in this context."""
    before = os.environ.get(_RESTRICTED)
    os.environ[_RESTRICTED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_RESTRICTED]
        else:
            os.environ[_RESTRICTED] = before
