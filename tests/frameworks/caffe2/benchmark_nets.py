"""The nets of benchmarks/caffe2_nets.py, for tests."""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType


@cache
def load_nets() -> ModuleType:
    """Return benchmarks/caffe2_nets.py as a module."""
    path = Path(__file__).parents[3] / "benchmarks" / "caffe2_nets.py"
    spec = importlib.util.spec_from_file_location("benchmark_caffe2_nets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
