"""AdamW for parameters in bfloat16, with its master weights and moments in float32.

An update that is smaller than the last digit of a bfloat16 parameter is kept in the master weight.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch.optim import Optimizer


class MasterAdamW(Optimizer):
    """Updates a float32 copy of each parameter as AdamW does, then rounds it to the dtype of the parameter."""

    def __init__(
        self,
        params: Iterable[torch.Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Update all parameters that have a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    _update(parameter, parameter.grad.to(torch.float32), self.state[parameter], group)


def _update(parameter: torch.Tensor, gradient: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
    if not state:
        state["step"] = torch.zeros(())
        state["master"] = parameter.to(torch.float32)
        state["exp_avg"] = torch.zeros_like(state["master"])
        state["exp_avg_sq"] = torch.zeros_like(state["master"])
    (beta1, beta2), rate = group["betas"], group["lr"]
    state["step"] += 1
    state["exp_avg"].lerp_(gradient, 1 - beta1)
    state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    first, second = 1 - beta1 ** state["step"], 1 - beta2 ** state["step"]
    size = (state["exp_avg_sq"] / second).sqrt_().add_(group["eps"])
    master = state["master"]
    master.mul_(1 - rate * group["weight_decay"])
    master.sub_((state["exp_avg"] / first).div_(size).mul_(rate))
    parameter.copy_(master)
