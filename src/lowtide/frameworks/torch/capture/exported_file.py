"""Exported programs from .pt2 files."""

import zipfile
from pathlib import Path

import torch
from torch.export import ExportedProgram

from lowtide.errors import MalformedInputError
from lowtide.files import open_regular


def load_exported(path: Path) -> ExportedProgram:
    """Load an exported program with its weights and example inputs.

    Raises InputError for a file that cannot be read, MalformedInputError for one that holds no exported program.
    """
    open_regular(path).close()
    if not zipfile.is_zipfile(path):
        raise MalformedInputError(f"{path} is no .pt2 archive, or is cut short; write it with torch.export.save")
    try:
        return torch.export.load(path)
    except Exception as error:  # whatever a damaged archive makes the loader stumble over
        reason = " ".join(str(error).split())[:200]
        raise MalformedInputError(
            f"{path} holds no exported program that this PyTorch can load ({type(error).__name__}: {reason})"
        ) from None
