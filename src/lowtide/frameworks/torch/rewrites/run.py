"""Running rewrites: the one place that gives new nodes their values and refuses a program that a rewrite broke."""

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from lowtide.core.collection import without_collection
from lowtide.core.errors import RewriteError
from lowtide.frameworks.torch.rewrites.face import Face
from lowtide.frameworks.torch.rewrites.rewrite import Rewrite
from lowtide.frameworks.torch.rewrites.values import Values


@without_collection()
def run_rewrites(module: GraphModule, rewrites: Sequence[Rewrite[Any]]) -> GraphModule:
    """Return the program after all rewrites, one after the other; may change the module that is given.

    After each, new nodes get the fake values that their ops give, and views follow the storage that took the place of
    theirs. Raises RewriteError where the program is broken then: if its nodes are not in order, an input is no longer
    overwritten, or the rewrite does not preserve what it says. O(nodes and edges) per rewrite.
    """
    for rewrite in rewrites:
        sites = rewrite.sites(module)
        if not sites:
            continue
        before, values = Face.of(module), Values(module)
        module = rewrite.apply(module, sites)
        _lint(module, rewrite)
        values.derive(module, rewrite.name)
        broken = Face.of(module).differs_from(before, rewrite.preserves)
        if broken is not None:
            raise _error(rewrite, broken)
    module.recompile()
    return module


def _lint(module: GraphModule, rewrite: Rewrite[Any]) -> None:
    try:
        module.graph.lint()
    except RuntimeError as error:
        raise _error(rewrite, str(error)) from error


def _error(rewrite: Rewrite[Any], broken: str) -> RewriteError:
    return RewriteError(f"the rewrite '{rewrite.name}' broke the program: {broken}; this is a defect, please report it")
