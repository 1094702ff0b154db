"""The reference that an export is compared with: eager's outputs, made sure to repeat and to react to the inputs."""

from __future__ import annotations

import torch

from hfexport_bot.runner.eager import MIN_REACTION, Outputs, moves_only_exempt, reactions, run_eager, same
from hfexport_bot.runner.failures import CaseEnded, clean
from hfexport_bot.runner.sources import GUESSED, ModelCase
from hfexport_bot.runner.sources.vocabulary import refused_values
from hfexport_bot.runner.sources.weights import strengthen
from hfexport_bot.schema import Outcome, OutcomeKind, RunnerSetup, UnavailableCause


def prepare_reference(case: ModelCase, setup: RunnerSetup) -> tuple[Outputs, list[str]]:
    """Eager's outputs, after making sure that they repeat and, as far as weights can, that they react."""
    reference = run_reference(case, setup)
    _require_deterministic(case, reference, setup)
    weak = _weak_inputs(case, reference, setup)
    if weak:
        reference = _strengthened(case, reference, setup)
        weak = _weak_inputs(case, reference, setup)
    return reference, [_blind(case, name, reaction, reference, setup) for name, reaction in weak.items()]


def _blind(case: ModelCase, name: str, reaction: float, reference: Outputs, setup: RunnerSetup) -> str:
    """What is said of an input that the outputs hardly depend on."""
    if moves_only_exempt(case.model, case.inputs, name, reference, setup.seed):
        return (
            f"the check is blind to {name}: changing it moves eager's outputs only at positions that a mask hides, "
            "which are not compared"
        )
    return (
        f"the check is nearly blind to {name}: changing it moves eager's outputs by {reaction:.3g} times the "
        f"tolerance, {MIN_REACTION:.0f} are wanted"
    )


def run_reference(case: ModelCase, setup: RunnerSetup) -> Outputs:
    """Eager's outputs. Ends the case where guessed inputs are not the model's, or nothing can be compared."""
    try:
        reference = run_eager(case.model, case.inputs, setup.seed)
    except Exception as error:
        why = refused_values(case.model, case.inputs) if case.source in GUESSED else ""
        if not why:
            raise
        cause, message = UnavailableCause.UNKNOWN_INPUTS, clean(why, setup)
        raise CaseEnded(Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=cause, message=message)) from error
    if not reference:
        message = "the forward returns no tensor, so that nothing can be compared"
        raise CaseEnded(Outcome(kind=OutcomeKind.ERROR, stage="eager", message=message))
    return reference


def _strengthened(case: ModelCase, reference: Outputs, setup: RunnerSetup) -> Outputs:
    """Eager's outputs on stronger weights; on the old ones where the model overflows or fails on those."""
    weights = [(parameter, parameter.detach().clone()) for parameter in case.model.parameters()]
    strengthen(case.model, torch.Generator().manual_seed(setup.seed))
    try:
        outputs = run_eager(case.model, case.inputs, setup.seed)
    except Exception:  # a model may check its own numbers
        outputs = {}
    if outputs and _finite(outputs) >= _finite(reference):
        return outputs
    with torch.no_grad():
        for parameter, before in weights:
            parameter.copy_(before)
    return reference


def _finite(outputs: Outputs) -> int:
    return sum(int(value.isfinite().sum()) for value in outputs.values())


def _weak_inputs(case: ModelCase, reference: Outputs, setup: RunnerSetup) -> dict[str, float]:
    found = reactions(case.model, case.inputs, reference, setup.seed)
    return {name: reaction for name, reaction in found.items() if reaction < MIN_REACTION}


def _require_deterministic(case: ModelCase, reference: Outputs, setup: RunnerSetup) -> None:
    repeated = run_eager(case.model, case.inputs, setup.seed)
    reseeded = run_eager(case.model, case.inputs, setup.seed + 1)
    if same(reference, repeated) and same(reference, reseeded):
        return
    why = (
        "eager draws random numbers: another seed gives other outputs"
        if same(reference, repeated)
        else "eager differs from itself on the same seed and inputs"
    )
    raise CaseEnded(Outcome(kind=OutcomeKind.NONDETERMINISTIC, stage="eager", message=why))
