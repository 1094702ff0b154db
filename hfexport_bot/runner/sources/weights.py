"""Random weights that outputs react to.

The usual initialisation (std 0.02) on a tiny model leaves attention uniform and every branch near zero: an exported
graph that ignores its mask would pass a tolerance of 1e-4.
"""

from __future__ import annotations

import math

import torch
from torch import nn

#: Spread put on parameters that start constant (norm weights, biases, mask tokens), so that losing one shows.
_CONSTANT_SPREAD = 0.1

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


@torch.no_grad()
def strengthen(model: nn.Module, generator: torch.Generator) -> None:
    """Change ``model``'s parameters in place so that each has a visible part in the outputs.

    Matrices below a root mean square of 1/sqrt(fan in), which keeps activations of order 1, are scaled up to it; what
    is larger by the model's own design stays. Constant vectors get a small spread. Single numbers stay.
    """
    fans = {
        id(module.weight): math.prod(module.weight.shape[1:])
        for module in model.modules()
        if isinstance(module, _CONVOLUTIONS)
    }
    for parameter in model.parameters():
        if parameter.numel() < 2 or not parameter.is_floating_point():
            continue
        if torch.all(parameter == parameter.flatten()[0]):
            spread = torch.randn(parameter.shape, generator=generator)
            parameter.add_(spread, alpha=_CONSTANT_SPREAD)
        elif parameter.ndim >= 2:
            target = 1 / math.sqrt(fans.get(id(parameter), parameter.shape[-1]))
            rms = parameter.square().mean().sqrt().item()
            if rms < target:
                parameter.mul_(target / rms)
