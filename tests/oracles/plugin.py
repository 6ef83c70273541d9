"""A package of a third party that offers a scheduler, installed into a folder for tests."""

import os
from pathlib import Path


def module_path(folder: Path) -> str:
    """Return a `PYTHONPATH` for a process that shall find what is installed in a folder."""
    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


def install_scheduler(folder: Path, name: str, body: str) -> None:
    """Write an installed package to a folder for the module path: a scheduler `name` whose `order` runs `body`."""
    module = "plugin_" + "".join(char for char in name if char.isalnum())
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (folder / f"{module}.py").write_text(f"class Scheduler:\n    def order(self, problem):\n{lines}\n")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[lowtide.schedulers]\n{name} = {module}:Scheduler\n")
