"""What a decision of lowtide depends on besides the graph, as one string for Inductor's caches."""

from importlib.metadata import version

from lowtide.frameworks.torch.backend.options import Options


def identity(options: Options) -> str:
    """Return a string that differs where plans for the same graph may differ."""
    return f"lowtide {version('lowtide')} {options!r}"
