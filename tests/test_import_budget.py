"""`import lowtide` costs next to nothing: it loads no framework, no solver, no terminal library."""

import subprocess
import sys

HEAVY = (
    *("torch", "onnx", "onnxruntime", "jax", "jaxlib", "tensorflow", "transformers", "accelerate", "lightning"),
    *("highspy", "numpy", "click", "rich", "msgspec"),
)


def _loaded_after(code: str) -> list[str]:
    command = f"import sys; {code}; print(*(name for name in {HEAVY} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True).stdout.split()


def test_importing_lowtide_loads_none_of_its_dependencies() -> None:
    assert _loaded_after("import lowtide") == []


def test_importing_lowtides_pytorch_names_loads_no_training_library() -> None:
    assert {"transformers", "accelerate", "lightning"}.isdisjoint(_loaded_after("import lowtide.torch"))


def test_planning_a_graph_loads_no_framework_and_no_terminal_library() -> None:
    plan_something = "import lowtide; lowtide.minimize(lowtide.GraphBuilder('empty').build())"
    assert _loaded_after(plan_something) == ["numpy", "msgspec"]


def test_the_command_line_loads_no_framework_for_a_graph_file_and_no_verb_it_does_not_run() -> None:
    assert _loaded_after("import lowtide.cli") == []
    loaded = _loaded_after("import lowtide.cli.command; assert 'lowtide.cli.plan' not in sys.modules")
    assert loaded == ["click"]
