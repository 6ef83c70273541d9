"""Build the source distribution and a wheel from it, audit the wheel, and use it as a user would: `make wheel`.

Nothing here sees the sources after the build: the wheel is installed into an empty environment, without a compiler, and
what is tried runs in a folder of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "dist"
IN_SDIST = ("LICENSE", "README.md", "pyproject.toml", "CMakeLists.txt", "native/CMakeLists.txt", "src/lowtide/py.typed")
IN_WHEEL = ("lowtide/py.typed", "lowtide/_native.pyi", "lowtide/_native.abi3.so", "lowtide/arena_allocator.so")

USER = """
import lowtide
from lowtide import caffe2, mesh_tensorflow, xla

builder = lowtide.GraphBuilder("user")
graph = builder.build()
result = lowtide.minimize(graph, budget="8 GiB")
packed = lowtide.pack(lowtide.Buffers([0], [1], [4]))
reveal_type(builder.add_buffer)
reveal_type(graph)
reveal_type(result)
reveal_type(result.plan)
reveal_type(result.peak_bytes)
reveal_type(lowtide.verify)
reveal_type(lowtide.save_plan)
reveal_type(lowtide.load_plan)
reveal_type(lowtide.holders_at_peak(graph, result.plan))
reveal_type(packed.offsets)
reveal_type(packed.arena_bytes)
reveal_type(lowtide.errors.LowtideError)
reveal_type(lowtide.frontier)
reveal_type(xla.schedule)
reveal_type(caffe2.load_net)
reveal_type(mesh_tensorflow.minimize_peak_memory)
"""

OF_FRAMEWORKS = """
from lowtide import inductor_export, jax, onnx, tensorflow, torch

reveal_type(torch.TrainingStep)
reveal_type(torch.PlannedStep.measure)
reveal_type(torch.training_step)
reveal_type(torch.capture)
reveal_type(torch.measure)
reveal_type(torch.explain)
reveal_type(torch.in_arena)
reveal_type(torch.InArena)
reveal_type(onnx.Session)
reveal_type(onnx.Pool.open)
reveal_type(onnx.read)
reveal_type(onnx.apply)
reveal_type(onnx.save)
reveal_type(jax.fit)
reveal_type(jax.explain)
reveal_type(jax.read)
reveal_type(tensorflow.optimize)
reveal_type(tensorflow.training_step)
reveal_type(inductor_export.read)
"""
"""The types in these are those of frameworks, which are looked up beside this Python."""


def run(command: Sequence[str | Path], **more: Any) -> str:
    """Run a command and return what it prints; exits with all that it says where it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **more)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def say(what: str) -> None:
    """Print what is going on."""
    print(f"==> {what}", flush=True)


def require(needed: Sequence[str], held: Sequence[str], what: str) -> None:
    """Exit where something is missing."""
    missing = sorted(set(needed) - set(held))
    if missing:
        sys.exit(f"{what} lacks {', '.join(missing)}")


def build() -> Path:
    """Build both and return the wheel."""
    shutil.rmtree(OUT, ignore_errors=True)
    run([sys.executable, "-m", "build", "-C", "cmake.define.LOWTIDE_STRICT=ON", "--outdir", OUT, ROOT])
    (sdist,), (wheel,) = OUT.glob("*.tar.gz"), OUT.glob("*.whl")
    with tarfile.open(sdist) as archive:
        require(IN_SDIST, [name.partition("/")[2] for name in archive.getnames()], sdist.name)
    with zipfile.ZipFile(wheel) as archive:
        require(IN_WHEEL, archive.namelist(), wheel.name)
    return wheel


def audit(wheel: Path) -> Path:
    """Return the wheel with the manylinux tag that auditwheel gives it; exits where it gives none."""
    tools = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", OUT / "audited", wheel], env=tools)
    (audited,) = (OUT / "audited").glob("*manylinux*.whl")
    return audited


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel into an empty environment and return its Python; what would need a compiler is refused."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    without = {"PATH": str(folder / "bin"), "CC": "/bin/false", "CXX": "/bin/false", "HOME": str(folder)}
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))}
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
    run([*pip, wheel], env={**kept, **without}, cwd=folder)
    return python


def check_types(python: Path, folder: Path, program: str, *beside: str) -> int:
    """Return how many types a user's type checker sees in a program; exits where one is unknown.

    What the installed wheel does not bring is looked up in the folders `beside`.
    """
    (folder / "user.py").write_text(program, encoding="utf-8")
    settings = {"typeCheckingMode": "strict", "extraPaths": beside}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    checker = Path(sys.executable).with_name("basedpyright")
    done = subprocess.run(
        [checker, "--outputjson", "--pythonpath", python, "user.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    found = [row["message"] for row in json.loads(done.stdout)["generalDiagnostics"]]
    seen = [message for message in found if message.startswith("Type of ")]
    wrong = [
        message for message in found if message not in seen or "Unknown" in message or message.endswith('is "Any"')
    ]
    if wrong or len(seen) != program.count("reveal_type"):
        sys.exit("a user's type checker is not content:\n" + "\n".join(wrong or found))
    return len(seen)


def main() -> None:
    """Build, audit, install, try."""
    say("building the source distribution, and a wheel from it")
    wheel = build()
    if sys.platform == "linux":
        say("auditing the wheel")
        wheel = audit(wheel)
    say(f"installing {wheel.name} into an empty environment without a compiler")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = install(wheel, folder / "environment")
        script = shutil.copy(ROOT / "scripts" / "try_installed.py", folder)
        print(run([python, script], cwd=folder, env={"PATH": str(python.parent)}).strip())
        seen = check_types(python, folder, USER)
        seen += check_types(python, folder, OF_FRAMEWORKS, sysconfig.get_path("purelib"))
        print(f"a type checker sees the types of {seen} names")


if __name__ == "__main__":
    main()
