"""Eager on other inputs than a case's own: its probes, and each input changed on its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hfexport_bot.runner.eager import Outputs, changed_inputs, run_eager

#: Most bytes of outputs that are kept. Tiny models give less than one MB; a checkpoint may give more, and is then
#: run again where its outputs are needed.
KEPT_BYTES = 128 << 20


@dataclass(frozen=True)
class Refusal:
    """Eager does not take some inputs."""

    error: Exception


class Probed:
    """What eager gives on each of ``inputs``, run once for as long as all of it is small.

    A graph that ignores an input, or keeps its traced value, is right wherever the probes hold that value too: so each
    input changed on its own is among them.
    """

    def __init__(
        self, model: torch.nn.Module, inputs: Mapping[str, Any], probes: Mapping[str, dict[str, Any]], seed: int
    ) -> None:
        changed = {f"changed_{name}": ways[0] for name, ways in changed_inputs(inputs, seed).items()}
        self.inputs: dict[str, dict[str, Any]] = {**probes, **changed}
        self._model = model
        self._seed = seed
        self._kept: dict[str, Outputs | Refusal] = {}
        self._left = KEPT_BYTES

    def eager(self, name: str) -> Outputs | Refusal:
        """Eager's outputs on a probe, or that it refuses it."""
        known = self._kept.get(name)
        if known is not None:
            return known
        found: Outputs | Refusal
        try:
            found = run_eager(self._model, self.inputs[name], self._seed)
        except Exception as error:  # eager decides which inputs a model takes, and refuses the rest as it likes
            found = Refusal(error.with_traceback(None))
        values = () if isinstance(found, Refusal) else found.values()
        size = sum(value.numel() * value.element_size() for value in values)
        if size <= self._left:
            self._left -= size
            self._kept[name] = found
        return found

    def kept(self) -> dict[str, Outputs | Refusal]:
        """All of them in order, up to the first that is too big to be kept."""
        for name in self.inputs:
            self.eager(name)
            if name not in self._kept:
                break
        return {name: self._kept[name] for name in self.inputs if name in self._kept}
