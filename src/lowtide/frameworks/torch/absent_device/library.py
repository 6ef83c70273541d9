"""Compile the C++ parts of an absent CUDA device once for the installed PyTorch."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from lowtide.core.errors import UnsupportedError
from lowtide.engine.planning.plan_cache import cache_folder
from lowtide.frameworks.torch.internals.absent_cuda import SOURCE, include_folders, library_folder

_COMPILERS = ("c++", "g++", "clang++")
_FLAGS = ("-std=c++20", "-O0", "-shared", "-fPIC")


def device_library() -> Path:
    """Return the compiled library: from the cache, or else compiled by the system's C++ compiler in seconds.

    The cache key is the release of PyTorch and the source. Several processes may compile at the same time; the last one
    replaces the file in one step. Raises UnsupportedError without a compiler that works.
    """
    key = hashlib.sha256(f"{torch.__version__} {sys.platform}".encode() + SOURCE.read_bytes()).hexdigest()[:20]
    folder = _folder()
    library = folder / f"{SOURCE.stem}-{key}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=folder) as made_in:
            made = Path(made_in) / library.name
            _compile(made)
            made.replace(library)
    return library


def _folder() -> Path:
    """Return the cache's folder, or a new one of this process if there is no cache that can be written."""
    cache = cache_folder()
    if cache is not None:
        try:
            (cache / "compiled").mkdir(parents=True, exist_ok=True)
            if os.access(cache / "compiled", os.W_OK):
                return cache / "compiled"
        except OSError:
            pass
    return Path(tempfile.mkdtemp(prefix="lowtide-"))


def _compile(library: Path) -> None:
    named = os.environ.get("CXX")
    compiler = shutil.which(named) if named else next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        wanted = named or ", ".join(_COMPILERS)
        raise UnsupportedError(
            f"planning for an absent device needs a C++ compiler once, and there is none ({wanted}); install g++ or "
            "clang++, or name one in CXX"
        )
    includes = [f"-I{folder}" for folder in include_folders()]
    links = [f"-L{library_folder()}", "-lc10", "-ltorch_cpu"]
    command = [compiler, *_FLAGS, *includes, str(SOURCE), "-o", str(library), *links]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit code {done.returncode}"]
        raise UnsupportedError(
            f"{compiler} cannot compile against PyTorch {torch.__version__}: {errors[0].strip()}; try another compiler "
            "(CXX)"
        )
