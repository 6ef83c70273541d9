"""Training steps compiled by Inductor under plans of lowtide: measured peaks beside predicted ones."""

import logging

import torch
from measured_models import MODELS, NARROW
from measured_runs import Training
from results import table_head, write_section

from lowtide.core.units import format_bytes

SHARES = (0.7, 0.5)
MOST_BELOW = 0.1
"""How far the measured peak may be below the predicted one; it may not be above."""


def main() -> None:
    """Measure, print, and write the section into RESULTS.md."""
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    head = ["model", "budget", "Inductor alone", "predicted", "measured", "measured / predicted", "status", "step time"]
    table = table_head(head)
    print("\n".join(table), flush=True)
    met = within = 0
    for model in MODELS:
        torch.manual_seed(0)
        training = Training(*model.make(NARROW))
        alone = training.with_backend("inductor")
        held = sum(tensor.nbytes for tensor in [*training.module.parameters(), *training.module.buffers()])
        for share in SHARES:
            trained = training.with_lowtide(compiler="inductor", budget=int(alone.peak_bytes * share) + held)
            ratio = trained.measured.measured_over_predicted
            assert ratio is not None
            met += 1 - MOST_BELOW <= ratio <= 1
            within += trained.peak_bytes <= alone.peak_bytes * share
            cells = [
                model.name,
                f"{share:.0%}",
                format_bytes(alone.peak_bytes),
                format_bytes(trained.measured.predicted_peak_bytes or 0),
                format_bytes(trained.peak_bytes),
                f"{ratio:.4f}",
                str(trained.result.status),
                f"{trained.measured.median_seconds / alone.measured.median_seconds:.2f}x",
            ]
            table.append(f"| {' | '.join(cells)} |")
            print(table[-1], flush=True)
    cells = len(MODELS) * len(SHARES)
    lead = (
        "Budgets in percent of the measured peak of Inductor alone, without weights; the predicted peak is that of "
        "Inductor's kernels after fusion. Measured at most the predicted peak, and no more than "
        f"{MOST_BELOW:.0%} below it: {met} of {cells}. Measured within the budget: {within} of {cells}. "
        "Step time beside Inductor alone."
    )
    command = "python benchmarks/bench_torch_inductor.py"
    write_section("Training steps under Inductor", command, "\n".join([lead, "", *table]))


if __name__ == "__main__":
    main()
