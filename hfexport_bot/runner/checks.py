"""Stages ``load``, ``run`` and ``parity``: the artifact in its runtime against eager, traced shape and probes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch

from exporters import Artifact, UnsupportedByRuntime
from exporters.leaves import named_leaves
from exporters.parity import TOLERANCES, TensorComparison, compare, packed_like
from hfexport_bot.runner.eager import (
    Outputs,
    copied,
    is_mask,
    perturbed_outputs,
    run_eager,
    undefined_positions,
    widest_weights,
)
from hfexport_bot.runner.interface import interface
from hfexport_bot.runner.probed import Probed, Refusal
from hfexport_bot.runner.runtime_log import native_log
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import MAX_NAME_CHARS, Axis, Component, OutcomeKind, ProbeResult, TensorParity, largest

#: Weights off by this much flip an argmax only where it is a tie; one draw leaves every other tie as it was.
TIE_PERTURBATION = 1e-6
TIE_DRAWS = 8


@dataclass(frozen=True)
class Failure:
    """Why a checked artifact does not pass; ``component`` is empty where there is only one, and ``probe`` where it
    fails on the traced inputs."""

    kind: OutcomeKind
    stage: str
    message: str
    error: BaseException | None = None
    component: str = ""
    probe: str = ""


@dataclass(frozen=True)
class Checked:
    """The components' numbers, the failure that decides the outcome, and what should be said besides."""

    components: tuple[Component, ...]
    failure: Failure | None
    notes: tuple[str, ...] = ()


def check(
    artifact: Artifact,
    case: ModelCase,
    expected: Outputs,
    *,
    dynamic: bool,
    seed: int,
    on_stage: Callable[[str], None],
    clean: Callable[[str], str],
    probed: Probed | None = None,
) -> Checked:
    """Load and run an artifact and compare every output.

    Args:
        expected: eager's outputs on the case's own inputs.
        probed: eager on its probes, run here by default.
        dynamic: also run probes of other shapes than the traced one; padding, and each input changed on its own, are
            probed in any case.
        clean: makes a message fit to be sent.
    """
    probed = probed or Probed(case.model, case.inputs, case.probes, seed)
    checker = _Checker(artifact, case, probed, seed, on_stage, clean)
    failure = checker.load() or checker.traced(expected)
    probes = () if failure is not None and failure.stage in ("load", "run") else checker.probes(dynamic)
    failure = failure or first_failure(probes, checker.errors)
    component = describe("model", artifact, checker.outputs, probes)
    return Checked((component,), failure, tuple(dict.fromkeys(checker.notes)))


def describe(
    name: str, artifact: Artifact, outputs: Sequence[TensorParity], probes: Sequence[ProbeResult]
) -> Component:
    """What is reported of one artifact."""
    return Component(
        name=name,
        max_abs=largest(o.max_abs for o in outputs),
        outputs=tuple(outputs),
        probes=tuple(probes),
        axes=tuple(
            Axis(
                input=axis.input[:MAX_NAME_CHARS],
                axis=axis.axis,
                dynamic=axis.dynamic,
                lower=axis.lower,
                upper=axis.upper,
                symbol=axis.symbol[:MAX_NAME_CHARS],
            )
            for axis in artifact.axes
        ),
        **interface(artifact),
    )


def first_failure(probes: Sequence[ProbeResult], errors: Mapping[str, Exception] | None = None) -> Failure | None:
    """What decides among probes: one that does not run before one whose numbers differ. ``errors`` are what they
    raised."""
    for status, kind, stage in (("error", OutcomeKind.ERROR, "run"), ("parity", OutcomeKind.PARITY, "parity")):
        for probe in probes:
            if probe.status == status:
                error, message = (errors or {}).get(probe.name), f"probe {probe.name}: {probe.message}"
                return Failure(kind, stage, message, error, probe=probe.name)
    return None


def load(artifact: Artifact) -> Failure | None:
    """Load an artifact in its runtime."""
    try:
        with native_log():
            artifact.session  # noqa: B018  loads on first access
    except UnsupportedByRuntime as error:
        return Failure(OutcomeKind.UNSUPPORTED, "load", said(error), error)
    except Exception as error:  # runtimes raise what they like
        return Failure(OutcomeKind.ERROR, "load", described(error), error)
    return None


class _Checker:
    def __init__(
        self,
        artifact: Artifact,
        case: ModelCase,
        probed: Probed,
        seed: int,
        on_stage: Callable[[str], None],
        clean: Callable[[str], str],
    ) -> None:
        self.artifact = artifact
        self.case = case
        self.probed = probed
        self.seed = seed
        self.on_stage = on_stage
        self.clean = clean
        self.outputs: list[TensorParity] = []
        self.errors: dict[str, Exception] = {}
        self.notes: list[str] = []

    def load(self) -> Failure | None:
        self.on_stage("load")
        return load(self.artifact)

    def traced(self, expected: Outputs) -> Failure | None:
        """The traced shape."""
        self.on_stage("run")
        try:
            actual = self._run(self.case.inputs)
        except Exception as error:
            return Failure(OutcomeKind.ERROR, "run", described(error), error)
        self.on_stage("parity")
        comparisons = self._compare(self.case.inputs, expected, actual)
        self.outputs = [tensor_parity(comparison, self.clean) for comparison in comparisons]
        wrong = [comparison for comparison in comparisons if not comparison.passed]
        return Failure(OutcomeKind.PARITY, "parity", listed(wrong)) if wrong else None

    def probes(self, dynamic: bool) -> tuple[ProbeResult, ...]:
        """Every probe that fits the graph's inputs; for a static graph those of the traced shape."""
        traced = _shapes(self.case.inputs)
        results = []
        for name, inputs in self.probed.inputs.items():
            if not dynamic and _shapes(inputs) != traced:
                continue
            try:
                self.artifact.bind(inputs)
            except ValueError as error:
                self.notes.append(f"probe {name} left out: {error}")
            else:
                results.append(self._probe(name, inputs))
        return tuple(results)

    def _probe(self, name: str, inputs: Mapping[str, Any]) -> ProbeResult:
        self.on_stage("run")
        expected = self.probed.eager(name)
        name = name[:MAX_NAME_CHARS]
        if isinstance(expected, Refusal):
            message = self.clean(f"eager refuses it: {described(expected.error)}")
            return ProbeResult(name=name, status="static", message=message)
        try:
            actual = self._run(inputs)
        except Exception as error:
            self.errors[name] = error
            message = self.clean(f"eager takes it, but: {described(error)}")
            return ProbeResult(name=name, status="error", message=message)
        self.on_stage("parity")
        comparisons = self._compare(inputs, expected, actual)
        wrong = [comparison for comparison in comparisons if not comparison.passed]
        status: Literal["pass", "parity"] = "parity" if wrong else "pass"
        errors = [comparison.max_abs for comparison in comparisons]
        message = self.clean(listed(wrong))
        return ProbeResult(name=name, status=status, max_abs=largest(errors), message=message)

    def _run(self, inputs: Mapping[str, Any]) -> Outputs:
        """Run the artifact on a copy: a graph may write into its inputs as its model does."""
        with native_log():
            return self.artifact(**copied(inputs))

    def _compare(self, inputs: Mapping[str, Any], expected: Outputs, actual: Outputs) -> tuple[TensorComparison, ...]:
        """Compare, and where something differs leave out what eager itself does not define."""
        expected = packed_like(expected, actual)
        exempt = undefined_positions(inputs, expected)
        weights = widest_weights(self.case.model)
        comparisons = compare(expected, actual, exempt, weights)
        if all(comparison.passed for comparison in comparisons):
            return comparisons
        for reason, undefined in (
            (
                "eager's own attention implementations disagree",
                _moved(expected, packed_like(self._other_attention(inputs), actual)),
            ),
            ("weights off by 1e-6 flip them too", ties(self.case.model, inputs, expected, self.seed)),
        ):
            for name, moved in undefined.items():
                known = exempt.get(name)
                wider = moved if known is None else moved | _expanded(known, moved)
                exempt[name] = wider
                self.notes.append(f"{name}: {int(moved.sum())} positions left out, {reason}")
        return compare(expected, actual, exempt, weights)

    def _other_attention(self, inputs: Mapping[str, Any]) -> Outputs:
        """Eager's outputs with the attention implementation that it does not use; nothing where there is no choice.

        Implementations that differ even where every position counts are two functions, as with a soft cap that only
        one of them has, and tell nothing of undefined values.
        """
        model = self.case.model
        everything = {k: torch.ones_like(v) if is_mask(k, v) else v for k, v in inputs.items()}
        try:
            wanted = run_eager(model, everything, self.seed)
            with _other_implementation(model) as switched:
                if not switched or _moved(wanted, run_eager(model, everything, self.seed)):
                    return {}
                return run_eager(model, inputs, self.seed)
        except Exception:  # not every model has both
            return {}


def ties(model: torch.nn.Module, inputs: Mapping[str, Any], expected: Outputs, seed: int) -> dict[str, torch.Tensor]:
    """Where integer outputs flip when weights move a little, by output."""
    discrete = [name for name, value in expected.items() if not (value.is_floating_point() or value.is_complex())]
    found: dict[str, torch.Tensor] = {}
    for draw in range(TIE_DRAWS if discrete else 0):
        others = perturbed_outputs(model, inputs, seed + draw, TIE_PERTURBATION)
        for name, moved in _moved(expected, {name: others[name] for name in discrete if name in others}).items():
            found[name] = found[name] | moved if name in found else moved
    return found


@contextmanager
def _other_implementation(model: Any) -> Iterator[bool]:
    """Eager attention in place of sdpa, or the reverse; gives False, and changes nothing, where there is no choice."""
    configs: list[Any] = [getattr(module, "config", None) for module in model.modules()]
    before = [(config, config._attn_implementation) for config in configs if hasattr(config, "_attn_implementation")]
    current = before[0][1] if before else None
    if not hasattr(model, "set_attn_implementation") or current not in ("eager", "sdpa"):
        yield False
        return
    try:
        model.set_attn_implementation("eager" if current == "sdpa" else "sdpa")
        yield True
    finally:
        for config, implementation in before:  # each its own: parts of one model may differ
            config._attn_implementation = implementation


def _moved(expected: Outputs, others: Outputs) -> dict[str, torch.Tensor]:
    """Where ``others`` differ from ``expected`` beyond the tolerance, by output, if anywhere."""
    found = {}
    for name, value in others.items():
        wanted = expected.get(name)
        if wanted is None or wanted.shape != value.shape:
            continue
        tolerance = TOLERANCES.get(wanted.dtype)
        moved = (wanted != value) & ~(wanted.isnan() & value.isnan())
        if tolerance is not None:
            moved &= ~(tolerance.excess(wanted, value) <= 1)
        if bool(moved.any()):
            found[name] = moved
    return found


def _expanded(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return mask.reshape(*mask.shape, *[1] * (like.dim() - mask.dim())).expand(like.shape)


def tensor_parity(comparison: TensorComparison, clean: Callable[[str], str]) -> TensorParity:
    """A comparison as it is reported."""
    return TensorParity(
        name=comparison.name[:MAX_NAME_CHARS],
        shape=comparison.shape,
        dtype=comparison.dtype,
        max_abs=comparison.max_abs,
        max_rel=comparison.max_rel,
        mismatched=comparison.mismatched,
        note=clean("; ".join(part for part in (comparison.problem, comparison.note) if part)),
    )


def listed(wrong: Sequence[TensorComparison]) -> str:
    """What is wrong, output by output."""
    return "; ".join(f"{comparison.name}: {comparison.problem}" for comparison in wrong)


def described(error: BaseException) -> str:
    """An error with its type."""
    return f"{type(error).__name__}: {said(error)}"


def said(error: BaseException) -> str:
    """What an error says, with the notes that were added to it."""
    return "\n".join([str(error) or type(error).__name__, *getattr(error, "__notes__", ())])


def _shapes(inputs: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in named_leaves(dict(inputs)).items()}
