"""Exported programs from .pt2 files."""

import zipfile
from pathlib import Path

import torch
from torch.export import ExportedProgram

from lowtide.core.errors import MalformedInputError, UnsupportedError, one_line
from lowtide.core.files import open_regular
from lowtide.frameworks.torch.capture.code_in_exported import code_in
from lowtide.frameworks.torch.internals.exported_archive import archive_members, is_operator, load_without_pickle


def load_exported(path: Path, *, trust: bool = False) -> ExportedProgram:
    """Load an exported program; without `trust`, nothing in the file runs as code, and nothing is unpickled.

    Sample inputs are pickled, so that only a trusted file comes with them; see `sample_inputs`.

    Raises InputError for a file that cannot be read, MalformedInputError for one that holds no exported program,
    UnsupportedError for one that cannot be loaded without trust.
    """
    open_regular(path).close()
    if not zipfile.is_zipfile(path):
        raise MalformedInputError(f"{path} is no .pt2 archive, or is cut short; write it with torch.export.save")
    try:
        return torch.export.load(path) if trust else _load_untrusted(path)
    except UnsupportedError:
        raise
    except Exception as error:  # whatever a damaged archive makes the loader stumble over
        raise MalformedInputError(
            f"{path} holds no exported program that this PyTorch can load ({type(error).__name__}: "
            f"{one_line(error, 200)})"
        ) from None


def _load_untrusted(path: Path) -> ExportedProgram:
    members, archive = archive_members(path)
    code = code_in(members, archive.read_bytes, is_operator)
    if code is not None:
        raise UnsupportedError(_needs_trust(path, code))
    return load_without_pickle(path)


def _needs_trust(path: Path, code: str) -> str:
    return (
        f"{path} {code}, so that loading it could run code from the file; if you trust where it comes from, "
        "load it with --trust (trust=True)"
    )
