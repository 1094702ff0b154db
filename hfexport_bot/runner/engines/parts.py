"""The parts that foreign exporters split a model into, where they are not run one after the other.

Their authors export models of pictures or sound in parts, for a forward too, and leave merging features into
embeddings, making masks for a static cache and the like to the caller. But each part is a model with inputs of its own,
and can be judged as any other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from hfexport_bot.runner.engines.artifact import RepoArtifact
from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.runner.sources import ModelCase

#: Their functions that give each part's model and inputs: of a prompt, of a forward, and whether a forward has parts.
SPLIT_GENERATION = "decompose_for_generation"
SPLIT_FORWARD = "decompose_multimodal"
HAS_PARTS = "is_multimodal"

#: Gives the model and the inputs of each part, for inputs of the whole.
Split = Callable[[Any, dict[str, Any]], Mapping[str, tuple[torch.nn.Module, dict[str, Any]]]]


@dataclass(frozen=True)
class RepoParts:
    """The export of each part, and the case to judge it by; ``notes`` say why not all together."""

    artifacts: Mapping[str, RepoArtifact]
    cases: Mapping[str, ModelCase]
    notes: tuple[str, ...] = ()


def forward_split(package: ExportersPackage, model: torch.nn.Module) -> Split | None:
    """What splits a model for its forward, where its exporters would not export it whole."""
    has_parts, split = package.function(HAS_PARTS), package.function(SPLIT_FORWARD)
    return split if has_parts is not None and has_parts(model) else None


def part_cases(split: Split, case: ModelCase) -> dict[str, ModelCase]:
    """The model, inputs and probes of each part, as eager calls it for the case's inputs and probes."""
    parts = split(case.model, copy.deepcopy(dict(case.inputs)))
    probes: dict[str, Any] = {}
    for name, inputs in case.probes.items():
        try:
            probes[name] = split(case.model, copy.deepcopy(dict(inputs)))
        except Exception:  # eager decides which inputs a model takes
            continue
    return {
        part: replace(
            case,
            model=model,
            inputs=inputs,
            probes={name: parts[part][1] for name, parts in probes.items() if part in parts},
        )
        for part, (model, inputs) in parts.items()
    }
