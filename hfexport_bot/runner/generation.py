"""Task ``generate``: prefill and decode (and an encoder before them) in their runtime against eager's ``generate``.

Greedy tokens must be equal, and so must the numbers behind tokens: the logits of every step along a given continuation,
so that neither a repeated token nor an early end nor a tie decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from exporters import Artifact
from exporters.leaves import named_leaves
from exporters.parity import TOLERANCES, TensorComparison, compare
from exporters.registry import replaced
from hfexport_bot.runner.checks import Checked, Failure, describe, described, first_failure, listed, load, tensor_parity
from hfexport_bot.runner.eager import Outputs, changed_inputs, run_eager
from hfexport_bot.runner.runtime_log import native_log
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.runner.sources.vocabulary import ordinary_tokens
from hfexport_bot.schema import MAX_NAME_CHARS, OutcomeKind, ProbeResult, largest

if TYPE_CHECKING:
    from exporters.runtime.generation import GenerationExport

#: Tokens that eager and the exported loop make of each prompt, unless all rows end sooner.
NEW_TOKENS = 8

#: Told of a stage and its component as it begins.
OnStage = Callable[[str, str], None]


class Decoding(torch.nn.Module):
    """``model.generate`` as a forward, for what is measured on forwards (`hfexport_bot.runner.eager`): greedy, or along
    a ``continuation`` (int64, [batch, steps]).

    Prompts in; the new tokens (int64, [batch]) and the model's logits ([batch, vocabulary]) out, a list with an entry a
    step of each.
    """

    def __init__(self, model: Any, continuation: torch.Tensor | None = None) -> None:
        super().__init__()
        self.model = model
        self.continuation = continuation
        #: How many tokens the last sequences began with.
        self.start = 0

    def forward(self, **prompts: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        found = self.model.generate(
            **prompts,
            **({} if self.continuation is None else {"logits_processor": [_along(self.continuation)]}),
            do_sample=False,
            num_beams=1,
            max_new_tokens=NEW_TOKENS,
            return_dict_in_generate=True,
            output_logits=True,
        )
        self.start = found.sequences.shape[1] - len(found.logits)
        tokens = found.sequences[:, self.start :]
        return {"tokens": list(tokens.unbind(1)), "logits": list(found.logits)}


def _along(continuation: torch.Tensor) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Scores for ``generate`` that pick the tokens of ``continuation``, one column a call."""
    columns = iter(continuation.unbind(1))

    def pick(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf).scatter(1, next(columns)[:, None], 0.0)

    return pick


def continuation_of(prompts: Mapping[str, torch.Tensor], ordinary: torch.Tensor) -> torch.Tensor:
    """Tokens to decode along, int64, [batch, steps]: the ``ordinary`` ones of the prompts, or of the vocabulary where
    prompts have none (sound, or nothing but placeholders of pictures), in turn.

    Tiny models like to repeat one token, or end at once; decoding then would be checked on next to nothing.
    """
    ids = prompts.get("input_ids")
    said = ids[torch.isin(ids, ordinary) & prompts["attention_mask"].bool()] if ids is not None else ordinary
    pool = said if len(said) else ordinary
    batch = batch_of(prompts)
    places = torch.arange(batch * NEW_TOKENS) % len(pool)
    return pool[places].reshape(batch, NEW_TOKENS)


def batch_of(prompts: Mapping[str, torch.Tensor]) -> int:
    """How many prompts there are: pictures may be packed, and text never is."""
    return len(prompts["input_ids"] if "input_ids" in prompts else next(iter(prompts.values())))


def blind_spots(model: torch.nn.Module, prompts: Mapping[str, Any], reference: Outputs, seed: int) -> list[str]:
    """What the generated tokens alone would not tell: inputs that can change without changing them, and an early end.

    ``reference``: eager's outputs of `Decoding` on ``prompts``.
    """
    tokens = _tokens(reference)
    notes = []
    for name, ways in changed_inputs(prompts, seed).items():
        others = [found for changed in ways if (found := _tokens_if_taken(model, changed, seed)) is not None]
        if others and all(torch.equal(tokens, other) for other in others):
            notes.append(f"changing {name} leaves the generated tokens as they are: only the logits tell of it")
    if tokens.shape[1] < NEW_TOKENS:
        notes.append(f"every row ends within {tokens.shape[1]} of {NEW_TOKENS} tokens")
    return notes


def _tokens_if_taken(model: torch.nn.Module, prompts: Mapping[str, Any], seed: int) -> torch.Tensor | None:
    """Eager's tokens, or None where it refuses the prompts."""
    try:
        return _tokens(run_eager(Decoding(model), prompts, seed))
    except Exception:  # the model's own code may refuse them in any way it likes
        return None


def check_generation(
    export: GenerationExport,
    case: ModelCase,
    *,
    dynamic: bool,
    seed: int,
    on_stage: OnStage,
    clean: Callable[[str], str],
) -> Checked:
    """Load every component, generate from the traced prompts and from each probe, and compare tokens and logits.

    Args:
        dynamic: run probes of other shapes than the traced one too.
        clean: makes a message fit to be sent.
    """
    checker = _Checker(export, case, seed, on_stage, clean)
    failure = checker.load() or checker.traced()
    if failure is None or failure.stage == "parity":
        traced = _shapes(case.inputs)
        for name, prompts in case.probes.items():
            if not dynamic and _shapes(prompts) != traced:
                continue
            checker.probe(name[:MAX_NAME_CHARS], prompts)
    failure = failure or checker.first_probe_failure()
    components = tuple(
        describe(name, artifact, checker.outputs.get(name, []), checker.probes[name])
        for name, artifact in export.artifacts.items()
    )
    return Checked(components, failure, tuple(dict.fromkeys(checker.notes)))


@dataclass(frozen=True)
class _Eager:
    """What eager gives: how many tokens sequences begin with; its greedy tokens (int64, [batch, steps]) with the logits
    of each step, the logits along the continuation, and the encoder's outputs."""

    start: int
    tokens: torch.Tensor
    logits: list[torch.Tensor]
    along: list[torch.Tensor]
    encoded: Outputs


@dataclass
class _Found:
    """What the exported loop came to on some prompts: the worst comparison of each output, by component."""

    worst: dict[str, dict[str, TensorComparison]]
    failure: Failure | None = None
    notes: list[str] = field(default_factory=list)

    def add(self, component: str, comparison: TensorComparison) -> None:
        known = self.worst[component].get(comparison.name)
        if known is None or _badness(comparison) > _badness(known):
            self.worst[component][comparison.name] = comparison

    def wrong(self, component: str) -> list[TensorComparison]:
        return [comparison for comparison in self.worst[component].values() if not comparison.passed]


def _badness(comparison: TensorComparison) -> tuple[bool, bool, float]:
    error = comparison.max_abs or 0.0
    return not comparison.passed, math.isnan(error), error


class _Watched:
    """An artifact that tells of its calls."""

    def __init__(self, artifact: Artifact, begin: Callable[[], None], keep: Callable[[Outputs], None]) -> None:
        self._artifact = artifact
        self._begin = begin
        self._keep = keep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._artifact, name)

    def __call__(self, **inputs: Any) -> Outputs:
        self._begin()
        outputs = self._artifact(**inputs)
        self._keep(outputs)
        return outputs


class _Checker:
    def __init__(
        self, export: GenerationExport, case: ModelCase, seed: int, on_stage: OnStage, clean: Callable[[str], str]
    ) -> None:
        self.export = export
        self.case = case
        self.seed = seed
        self.on_stage = on_stage
        self.clean = clean
        self.outputs: dict[str, list[Any]] = {}
        self.probes: dict[str, list[ProbeResult]] = {name: [] for name in export.artifacts}
        self.errors: dict[str, dict[str, Exception]] = {}
        self.notes: list[str] = []
        #: The step that gives the prompt's logits.
        self._reader = "lm_head" if export.media else "prefill"

    def load(self) -> Failure | None:
        for name, artifact in self.export.artifacts.items():
            self.on_stage("load", name)
            failure = load(artifact)
            if failure is not None:
                return Failure(failure.kind, failure.stage, failure.message, failure.error, name)
        return None

    def traced(self) -> Failure | None:
        found = self._examine(self.case.inputs, self._eager(self.case.inputs))
        self.notes += found.notes
        self.outputs = {
            name: [tensor_parity(comparison, self.clean) for comparison in worst.values()]
            for name, worst in found.worst.items()
        }
        if found.failure is not None:
            return found.failure
        for name in found.worst:
            if wrong := found.wrong(name):
                return Failure(OutcomeKind.PARITY, "parity", listed(wrong), component=name)
        return None

    def probe(self, name: str, prompts: Mapping[str, Any]) -> None:
        """Generate from other prompts; each component gets a result."""
        try:
            eager = self._eager(prompts)
        except Exception as error:  # eager decides which prompts a model takes
            message = self.clean(f"eager refuses it: {described(error)}")
            for results in self.probes.values():
                results.append(ProbeResult(name=name, status="static", message=message))
            return
        found = self._examine(prompts, eager)
        self.notes += [f"probe {name}: {note}" for note in found.notes]
        for component, worst in found.worst.items():
            failure, wrong = found.failure, found.wrong(component)
            status: Literal["pass", "parity", "error"] = "parity" if wrong else "pass"
            message = listed(wrong)
            if failure is not None and failure.component == component:
                status, message = "error", f"eager takes it, but: {failure.message}"
                if isinstance(failure.error, Exception):
                    self.errors.setdefault(component, {})[name] = failure.error
            elif not worst:
                continue  # it did not come to that
            errors = [each.max_abs for each in worst.values()]
            result = ProbeResult(name=name, status=status, max_abs=largest(errors), message=self.clean(message))
            self.probes[component].append(result)

    def first_probe_failure(self) -> Failure | None:
        failures = [
            replace(failure, component=component)
            for component, probes in self.probes.items()
            if (failure := first_failure(probes, self.errors.get(component))) is not None
        ]
        return min(failures, key=lambda failure: failure.kind is not OutcomeKind.ERROR, default=None)

    def _eager(self, prompts: Mapping[str, Any]) -> _Eager:
        self.on_stage("eager", "")
        model: Any = self.case.model
        encoder = model.get_encoder() if "encoder" in self.export.artifacts else None
        encoded: Outputs = {}

        def keep(module: Any, inputs: Any, outputs: Any) -> None:
            encoded.update({name: value.clone() for name, value in named_leaves(outputs).items()})

        hook = encoder.register_forward_hook(keep) if encoder is not None else None
        try:
            decoding = Decoding(model)
            outputs = run_eager(decoding, prompts, self.seed)
            along = run_eager(Decoding(model, self._continuation(prompts)), prompts, self.seed)
        finally:
            if hook is not None:
                hook.remove()
        return _Eager(decoding.start, _tokens(outputs), _logits(outputs), _logits(along), encoded)

    def _continuation(self, prompts: Mapping[str, torch.Tensor]) -> torch.Tensor:
        model: Any = self.case.model
        return continuation_of(prompts, ordinary_tokens(model))

    def _examine(self, prompts: Mapping[str, Any], eager: _Eager) -> _Found:
        found = _Found({name: {} for name in self.export.artifacts})
        encoded: Outputs = {}
        running = next(iter(self.export.artifacts))

        def watched(name: str, artifact: Artifact) -> _Watched:
            def begin() -> None:
                nonlocal running
                running = name
                self.on_stage("run", name)

            return _Watched(artifact, begin, encoded.update if name == "encoder" else lambda outputs: None)

        self.on_stage("run", running)
        artifacts = {name: watched(name, artifact) for name, artifact in self.export.artifacts.items()}
        try:
            with native_log(), replaced(self.export, "artifacts", artifacts):
                logits = self.export.logits(**prompts, continuation=self._continuation(prompts))
                sequences = self.export.generate(**prompts, max_new_tokens=NEW_TOKENS)
        except Exception as error:  # runtimes raise what they like
            found.failure = Failure(OutcomeKind.ERROR, "run", described(error), error, running)
            return found
        if eager.encoded:
            self._compare_encoded(found, prompts.get("attention_mask"), eager.encoded, encoded)
        for step, expected in enumerate(eager.along):
            component = "decode" if step else self._reader
            self.on_stage("parity", component)
            for comparison in compare({"logits": expected}, {"logits": logits[:, step]}):
                found.add(component, comparison)
        self.on_stage("parity", "decode")
        found.add(
            "decode", self._compare_tokens(found, eager, self._as_long(sequences[:, eager.start :], eager.tokens))
        )
        return found

    def _compare_encoded(self, found: _Found, mask: torch.Tensor | None, expected: Outputs, actual: Outputs) -> None:
        """The encoder's outputs, wherever its prompt is no padding."""
        self.on_stage("parity", "encoder")
        exempt = {}
        if mask is not None:
            exempt = {name: mask == 0 for name, value in expected.items() if value.shape[:2] == mask.shape}
        for comparison in compare(expected, actual, exempt):
            found.add("encoder", comparison)

    def _as_long(self, tokens: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """``tokens`` with as many steps as eager's: a loop that ended sooner would have gone on with padding."""
        model: Any = self.case.model
        pad = model.generation_config.pad_token_id
        missing = expected.shape[1] - tokens.shape[1]
        filling = tokens.new_full((len(tokens), max(0, missing)), -1 if pad is None else int(pad))
        return torch.cat([tokens, filling], dim=1)

    def _compare_tokens(self, found: _Found, eager: _Eager, tokens: torch.Tensor) -> TensorComparison:
        steps = eager.tokens.shape[1]
        wrong = ties = 0
        problem = ""
        for row in range(len(tokens)):
            differing = (tokens[row, :steps] != eager.tokens[row]).nonzero().flatten().tolist()
            if not differing:
                continue
            step = differing[0]
            picked, expected = int(tokens[row, step]), int(eager.tokens[row, step])
            if _is_tie(eager.logits[step][row], expected, picked):
                ties += 1
                continue
            wrong += 1
            problem = problem or f"row {row} picks {picked} at step {step}, where eager picks {expected}"
        if tokens.shape[1] > steps and not ties:
            wrong, problem = wrong or 1, problem or f"{tokens.shape[1]} tokens where eager stops after {steps}"
        if ties:
            found.notes.append(f"tokens of {ties} of {len(tokens)} rows part from eager's at a tie")
        return TensorComparison(
            name="tokens",
            shape=tuple(eager.tokens.shape),
            dtype="int64",
            mismatched=wrong / len(tokens),
            problem=problem,
            note=f"{ties} rows part at a tie" if ties else "",
        )


def _is_tie(logits: torch.Tensor, expected: int, picked: int) -> bool:
    """Whether both tokens are the best one within what parity allows each of their logits."""
    if not 0 <= picked < len(logits):
        return False
    tolerance = TOLERANCES[torch.float32]
    best, other = float(logits[expected]), float(logits[picked])
    return abs(best - other) <= 2 * (tolerance.atol + tolerance.rtol * abs(best))


def _shapes(prompts: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in prompts.items()}


def _tokens(outputs: Outputs) -> torch.Tensor:
    """The new tokens of `Decoding`, [batch, steps]."""
    return torch.stack([value for name, value in outputs.items() if name.startswith("tokens.")], dim=1)


def _logits(outputs: Outputs) -> list[torch.Tensor]:
    """The logits of `Decoding`, an entry a step."""
    return [value for name, value in outputs.items() if name.startswith("logits.")]
