"""Check what `import lowtide` costs over bare Python, and that it loads no framework.

The budget is 100 ms; the figure is the least of several runs, since only noise can make it larger.
"""

import subprocess
import sys
import time

BUDGET_SECONDS = 0.100
RUNS = 9
FORBIDDEN = ("torch", "onnx", "onnxruntime", "jax", "jaxlib", "tensorflow", "highspy", "rich", "numpy", "click")


def seconds(code: str) -> float:
    """Return the least wall time of a fresh interpreter that runs `code`."""
    best = float("inf")
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Print the figure; exit with an error when the budget is broken."""
    loaded = f"import lowtide, sys; sys.exit(' '.join(n for n in {FORBIDDEN} if n in sys.modules) or None)"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"import lowtide loads what it must not: {result.stderr.strip()}")
    extra = seconds("import lowtide") - seconds("pass")
    print(f"import lowtide: {extra * 1000:.1f} ms over bare Python (budget {BUDGET_SECONDS * 1000:.0f} ms)")
    if extra > BUDGET_SECONDS:
        sys.exit("import lowtide is over its budget")


if __name__ == "__main__":
    main()
