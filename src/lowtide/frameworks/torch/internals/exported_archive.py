"""The archive of a .pt2 file, loaded without running pickled code, as `torch.export.load` may do."""
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false

from pathlib import Path

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch.export import ExportedProgram
from torch.export.pt2_archive import PT2ArchiveReader
from torch.export.pt2_archive._package import _load_exported_programs
from torch.export.pt2_archive.constants import ARCHIVE_VERSION_PATH, ARCHIVE_VERSION_VALUE, SAMPLE_INPUTS_DIR

from lowtide.core.environment import environment_with

_RESTRICTED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def load_without_pickle(path: Path) -> ExportedProgram:
    """Load an exported program without sample inputs; the archive must name no other pickle."""
    with _ReaderWithoutSamples(str(path)) as reader, environment_with(_RESTRICTED, "1"):
        version = reader.read_string(ARCHIVE_VERSION_PATH)
        if version != ARCHIVE_VERSION_VALUE:
            raise ValueError(f"the archive has version {version}; this PyTorch reads {ARCHIVE_VERSION_VALUE}")
        return _load_exported_programs(reader, reader.get_file_names(), None)["model"]


class _ReaderWithoutSamples(PT2ArchiveReader):
    def read_bytes(self, name: str) -> bytes:
        return b"" if name.startswith(SAMPLE_INPUTS_DIR) else super().read_bytes(name)


def is_operator(target: str) -> bool:
    """Return whether "torch.ops.NAMESPACE.NAME[.OVERLOAD]" exists."""
    found: object = torch
    for part in target.split(".")[1:]:
        found = getattr(found, part, None)
    return isinstance(found, OpOverload | HigherOrderOperator)


def has_fixed_sizes(program: ExportedProgram) -> bool:
    return not program.range_constraints
