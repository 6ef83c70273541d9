"""First training steps with and without lowtide, in processor seconds with all caches off."""

import argparse
import logging
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from measured_models import MODELS, NARROW, MeasuredModel
from results import table_head, write_section
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config

from lowtide.frameworks.torch.planning.programs import forget_programs

SECTION = "Planning beside Inductor's compile time"
WANTED = 1.3
"""Time of a first step with lowtide that is wanted, relative to Inductor's."""
BUDGET = "50%"


def processor_seconds() -> float:
    """Return what this process and the compilers it started have computed so far; other load does not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@contextmanager
def caches_off() -> Iterator[None]:
    """Let nothing that was compiled before be found again."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.dict("os.environ", {"TORCHINDUCTOR_CACHE_DIR": folder, "LOWTIDE_CACHE": "off"}),
        inductor_config.patch(force_disable_caches=True, compile_threads=1),
        functorch_config.patch(enable_autograd_cache=False),
    ):
        yield


def first_step(model: MeasuredModel, **compile_options: Any) -> tuple[float, float]:
    """Return the processor seconds of a first step, compiling included, and of a second one."""
    torch.manual_seed(0)
    module, batch = model.make(NARROW)
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage]
    forget_programs()
    step = torch.compile(module.train(), dynamic=False, **compile_options)
    seconds: list[float] = []
    with caches_off():
        for _ in range(2):
            started = processor_seconds()
            step(*batch).backward()
            seconds.append(processor_seconds() - started)
    return seconds[0], seconds[1]


def main() -> None:
    """Measure, print, and write the section into RESULTS.md when all models ran."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="models whose name contains this; RESULTS.md stays as it is")
    only: str | None = parser.parse_args().only
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    table = table_head(["model", "Inductor alone", "with lowtide", "with lowtide / alone"])
    ratios: list[float] = []
    for model in MODELS:
        if only is not None and only not in model.name:
            continue
        first, again = first_step(model)
        alone = first - again
        first, again = first_step(model, backend="lowtide", options={"budget": BUDGET})
        ratios.append((first - again) / alone)
        cells = [model.name, f"{alone:.1f} s", f"{first - again:.1f} s", f"{ratios[-1]:.2f}"]
        table.append(f"| {' | '.join(cells)} |")
        print(table[-1], flush=True)
    lead = (
        f"Processor seconds, compilers included, of a first training step less a second one, caches off, one thread; "
        f"budget {BUDGET} of the peak. Kernels are lowered several times: for their own need, for a plan, and with the "
        f"plan. At most {WANTED} times Inductor's own time: {sum(each <= WANTED for each in ratios)} of {len(ratios)}."
    )
    print(lead)
    if only is None:
        write_section(SECTION, "python benchmarks/bench_torch_compile_time.py", "\n".join([lead, "", *table]))


if __name__ == "__main__":
    main()
