"""What a decision of lowtide depends on besides the graph, as one string for Inductor's caches."""

from functools import cache
from hashlib import sha256
from pathlib import Path

import lowtide
from lowtide.frameworks.torch.compile.options import Options


def identity(options: Options) -> str:
    """Return a string that differs where plans for the same graph may differ."""
    return f"{package_identity()} {options!r}"


@cache
def package_identity() -> str:
    """Return a string that differs where the package does."""
    root = Path(lowtide.__file__).parent
    digest = sha256()
    for path in sorted([*root.rglob("*.py"), *root.glob("_native*")]):
        digest.update(path.read_bytes())
    return f"lowtide {digest.hexdigest()}"
