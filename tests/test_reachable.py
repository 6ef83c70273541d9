"""Every module serves somebody: a verb, a public name, an entry point or a framework reaches it."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PUBLIC = (
    "lowtide",
    "lowtide.__main__",
    "lowtide.caffe2",
    "lowtide.caffe2.memonger",
    "lowtide.inductor_export",
    "lowtide.jax",
    "lowtide.mesh_tensorflow",
    "lowtide.onnx",
    "lowtide.core.stability",
    "lowtide.errors",
    "lowtide.share",
    "lowtide.tensorflow",
    "lowtide.torch",
    "lowtide.torch.lightning",
    "lowtide.torch.transformers",
    "lowtide.xla",
)
"""What people import or run, beside the scripts and entry points of pyproject.toml."""
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (SOURCE / "lowtide").rglob("*.py")
}


def _named_in(module: str) -> Iterator[str]:
    """Yield what a module imports, wherever it does, and what its strings name: modules of a table, and verbs."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for_type_checkers = [
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for child in ast.walk(statement)
    ]
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if node in for_type_checkers:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.partition(":")[0]  # an entry of a table of modules
            if package == "lowtide.cli":
                yield f"{package}.{node.value}"


def _reached_from(roots: Iterator[str]) -> set[str]:
    reached: set[str] = set()
    waiting = [root for root in roots if root in MODULES]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        waiting += [name for name in (module.rpartition(".")[0], *_named_in(module)) if name in MODULES]
    return reached


def _roots() -> Iterator[str]:
    yield from PUBLIC
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for group in (project["scripts"], *project["entry-points"].values()):
        yield from (target.partition(":")[0] for target in group.values())


def test_every_module_is_reached() -> None:
    unreached = MODULES.keys() - _reached_from(_roots())
    assert sorted(unreached) == []
