"""The parts that foreign exporters split ``generate`` into, where our loop cannot run one after the other.

Merging features into embeddings, making masks for a static cache and the like is then left to the caller of the
exporters, but each part is a model with inputs of its own, and can be judged as any other.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hfexport_bot.runner.engines.artifact import RepoArtifact
from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.runner.sources import ModelCase

#: Their function that gives each part's model and inputs for a prompt.
SPLIT = "decompose_for_generation"


@dataclass(frozen=True)
class RepoParts:
    """The export of each part, and the case to judge it by; ``notes`` say why not all together."""

    artifacts: Mapping[str, RepoArtifact]
    cases: Mapping[str, ModelCase]
    notes: tuple[str, ...] = ()


def part_cases(package: ExportersPackage, case: ModelCase, settings: Mapping[str, Any]) -> dict[str, ModelCase]:
    """The model, inputs and probes of each part, as eager's ``generate`` calls it for the case's prompts.

    ``settings`` are further arguments of their function. Empty where they have none.
    """
    split = package.function(SPLIT)
    if split is None:
        return {}
    parts = split(case.model, copy.deepcopy(dict(case.inputs)), **settings)
    probes: dict[str, Any] = {}
    for name, prompts in case.probes.items():
        try:
            probes[name] = split(case.model, copy.deepcopy(dict(prompts)), **settings)
        except Exception:  # eager decides which prompts a model takes
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
