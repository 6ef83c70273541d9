"""The code to use after `fits`: it plans the training step for the memory of the device."""

from lowtide.frameworks.training_steps import Step
from lowtide.reporting.fitting_sizes import Level


def next_code(step: Step, level: Level) -> list[str]:
    """Return lines of Python that run a step in the memory that is free on the device."""
    allow = '"reorder", "share", "recompute", "offload"'
    if not step.parts:
        more = f', "allow": ({allow})' if level == "offload" else ""
        options = f'{{"budget": "fit"{more}}}'
        return [*step.code, f'step = torch.compile(made, backend="lowtide", options={options})']
    more = f", allow=({allow})" if level == "offload" else ""
    return [
        *step.code,
        f'step = lowtide.torch.training_step({step.parts}, batch, budget="fit"{more})',
        f"loss = step({step.call})",
    ]
