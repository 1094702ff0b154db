"""One case from the model's source to parity, as an outcome."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

import exporters
from exporters import StageError
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.leaves import named_leaves
from exporters.skips import find_skip
from exporters.stages import Frame, frames_of, is_modeling
from hfexport_bot.runner import tree
from hfexport_bot.runner.checks import Checked, check, said
from hfexport_bot.runner.eager import MIN_REACTION, Outputs, reactions, run_eager, same
from hfexport_bot.runner.eager_change import compare_eager, note_eager
from hfexport_bot.runner.engines import CannotDrive, export, export_generation
from hfexport_bot.runner.executed_lines import ExecutedLines
from hfexport_bot.runner.fingerprints import program_fingerprint
from hfexport_bot.runner.generation import NEW_TOKENS, Decoding, blind_spots, check_generation
from hfexport_bot.runner.keeping import Keeper
from hfexport_bot.runner.progress import OnFingerprint, OnStage, Progress, SameAsTwin
from hfexport_bot.runner.sources import (
    GUESSED,
    HookError,
    Inapplicable,
    ModelCase,
    Unavailable,
    find_model_case,
    load_hook,
)
from hfexport_bot.runner.sources.sizes import count_parameters
from hfexport_bot.runner.sources.vocabulary import refused_values
from hfexport_bot.runner.sources.weights import strengthen
from hfexport_bot.schema import (
    MAX_FRAMES,
    MAX_MESSAGE_CHARS,
    MAX_NAME_CHARS,
    MAX_TRIES,
    CaseId,
    CaseRequest,
    Engine,
    Layout,
    Location,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    SourceTry,
    Task,
    UnavailableCause,
)

#: Says why a case ended after its trace.
SAME_AS_TWIN = "the same graph as on the other side, from the same exporters: what follows was not run again"


#: What is done with a case's model and inputs.
_Work = Callable[[CaseId, ModelCase, RunnerSetup, Progress], Outcome]


class _Ended(Exception):
    """A case is over before it was exported."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome


def run_case(
    request: CaseRequest,
    setup: RunnerSetup,
    on_stage: OnStage,
    on_fingerprint: OnFingerprint | None = None,
    *,
    own_process: bool = False,
) -> Outcome:
    """Build, run eagerly, export, load, run and compare. Every failure becomes an outcome that names its stage.

    ``own_process``: this process has nothing else to do, and may be forked so that code of the author's tests can do no
    harm; the fork may be what returns.
    """
    executed = None if request.kept else ExecutedLines(setup)
    progress = Progress(on_stage, on_fingerprint, request.twin, executed, keep=request.keep)
    work = partial(_against_base, kept=Path(request.kept)) if request.kept else _surveyed if setup.survey else _checked
    return examine(request.id, partial(_from_tree, request, setup, own_process), setup, progress, work)


def examine(
    case_id: CaseId, find: Callable[[], ModelCase], setup: RunnerSetup, stages: Progress, work: _Work | None = None
) -> Outcome:
    """What a case comes to whose model and inputs ``find`` gives, from any source; ``work`` is all of it by default.

    ``find`` may raise ``Unavailable``, and what `require_not_skipped` raises.
    """
    try:
        outcome = _run(case_id, find, setup, stages, work or _checked)
    except _Ended as ended:
        outcome = ended.outcome
    except SameAsTwin:
        outcome = Outcome(kind=OutcomeKind.SKIPPED, stage="trace", message=SAME_AS_TWIN)
    except Exception as error:  # whatever the code under test raises is its own outcome
        outcome = failed(error, stages.current, setup, stages.component)
    stages.end()
    measured = {"stage_seconds": stages.seconds, "seconds": sum(stages.seconds.values())}
    found = {"fingerprint": stages.fingerprint, "executed": stages.executed.found() if stages.executed else None}
    return outcome.model_copy(update={**measured, **found})


def _run(case_id: CaseId, find: Callable[[], ModelCase], setup: RunnerSetup, stages: Progress, work: _Work) -> Outcome:
    stages.begin("source")
    try:
        case = find()
    except Unavailable as error:
        message, tried = _clean(error.message, setup), _cleaned(error.tried, setup)
        return Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=error.cause, message=message, tried=tried)
    except Inapplicable as error:
        return Outcome(kind=OutcomeKind.SKIPPED, stage="source", message=_clean(str(error), setup))
    told = _told(case, setup)
    stages.begin("eager")
    register_cache_pytrees(case.model)
    try:
        outcome = work(case_id, case, setup, stages)
    except Exception as error:  # whatever the code under test raises is its own outcome
        outcome = error.outcome if isinstance(error, _Ended) else failed(error, stages.current, setup, stages.component)
    notes = (*(_clean(note, setup) for note in case.notes), *outcome.notes)
    if outcome.cause is not None:  # what the source made was no case after all
        *before, last = told["tried"] or (SourceTry(source=case.source),)
        told["tried"] = (*before, last.model_copy(update={"cause": outcome.cause, "message": outcome.message}))
    return outcome.model_copy(update={**told, "notes": notes})


def _told(case: ModelCase, setup: RunnerSetup) -> dict[str, Any]:
    """What an outcome tells of the model and inputs, however the case ends."""
    fed = [name[:MAX_NAME_CHARS] for name in named_leaves(dict(case.inputs))]
    return {
        "source": f"{case.source}: {case.origin}"[:MAX_NAME_CHARS] if case.origin else case.source,
        "tried": _cleaned(case.tried, setup),
        "parameters": count_parameters(case.model),
        "fed": tuple(fed[:MAX_TRIES]),
        "built_from": _built_from(case.model, setup),
    }


def _built_from(model: torch.nn.Module, setup: RunnerSetup) -> tuple[str, ...]:
    """The files of the tree that the classes of a model's parts, and their bases, are written in."""
    modules = {each.__module__ for part in model.modules() for each in type(part).__mro__}
    files = {getattr(sys.modules.get(name), "__file__", None) or "" for name in modules}
    roots = {file: root for file in files if (root := _root_of(file, setup)) in _tree_roots(setup)}
    inside = (file.removeprefix(f"{root}/") for file, root in roots.items())
    return tuple(sorted(file for file in inside if len(file) <= MAX_NAME_CHARS))[:MAX_TRIES]


def _cleaned(tried: tuple[SourceTry, ...], setup: RunnerSetup) -> tuple[SourceTry, ...]:
    return tuple(each.model_copy(update={"message": _clean(each.message, setup)}) for each in tried[:MAX_TRIES])


def _against_base(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress, *, kept: Path) -> Outcome:
    """Eager on what base wrote, and no export."""
    return Outcome(kind=OutcomeKind.PASS, eager=compare_eager(kept, case, case_id.task, setup.seed))


def _surveyed(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> Outcome:
    """One eager forward, or one generation, and no export."""
    model = Decoding(case.model) if case_id.task is Task.GENERATE else case.model
    _reference(replace(case, model=model), setup)
    return Outcome(kind=OutcomeKind.PASS)


def _checked(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> Outcome:
    export_and_check = _generate if case_id.task is Task.GENERATE else _forward
    checked, workarounds, notes = export_and_check(case_id, case, setup, stages)
    noted = tuple(_clean(note, setup) for note in (*notes, *checked.notes))
    return _judged(checked, setup).model_copy(update={"workarounds": workarounds, "notes": noted})


#: What a check found, the workarounds hit, and what was noted before it.
_Found = tuple[Checked, dict[str, int], list[str]]


def _forward(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> _Found:
    keep = Keeper(setup.keep)
    keep.tensors("inputs", case.inputs)
    reference, notes = _eager(case, setup)
    keep.tensors("eager_outputs", reference)
    note_eager(case, reference, stages)
    dynamic = case_id.shapes is Shapes.DYNAMIC
    artifact = export(
        case,
        case_id.backend,
        engine=case_id.engine,
        dynamic=dynamic,
        disabled=setup.disabled_workarounds,
        on_stage=stages.begin,
        on_trace=partial(_traced, case_id, setup, stages, keep),
    )
    keep.artifact("model", artifact)
    checked = check(
        artifact,
        case,
        reference,
        dynamic=dynamic,
        seed=setup.seed,
        on_stage=stages.begin,
        clean=partial(_clean, setup=setup),
    )
    keep.outputs("runtime_outputs", artifact, case.inputs)
    return checked, artifact.workarounds, notes


def _generate(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> _Found:
    keep = Keeper(setup.keep)
    keep.tensors("inputs", case.inputs)
    reference, notes = _eager(replace(case, model=Decoding(case.model)), setup)
    keep.tensors("eager_outputs", reference)
    note_eager(case, reference, stages)
    notes += blind_spots(case.model, case.inputs, reference, setup.seed)
    stages.begin("signature")  # what generate calls is found out before the first component's own stages
    dynamic = case_id.shapes is Shapes.DYNAMIC
    try:
        exported = export_generation(
            case,
            case_id.backend,
            engine=case_id.engine,
            dynamic=dynamic,
            new_tokens=NEW_TOKENS,
            disabled=setup.disabled_workarounds,
            on_stage=stages.begin,
            on_trace=partial(_traced, case_id, setup, stages, keep),
        )
    except CannotDrive as error:
        outcome = failed(error, "run", setup)
        raise _Ended(outcome.model_copy(update={"kind": OutcomeKind.UNSUPPORTED, "notes": tuple(notes)})) from error
    for name, artifact in exported.artifacts.items():
        keep.artifact(name, artifact)
    notes += getattr(exported, "notes", ())
    checked = check_generation(
        exported, case, dynamic=dynamic, seed=setup.seed, on_stage=stages.begin, clean=partial(_clean, setup=setup)
    )
    hits: Counter[str] = Counter()
    for artifact in exported.artifacts.values():
        hits.update(artifact.workarounds)
    return checked, dict(hits), notes


def _traced(case_id: CaseId, setup: RunnerSetup, stages: Progress, keep: Keeper, program: ExportedProgram) -> None:
    keep.traced(program)
    stages.traced(program_fingerprint(program, case_id, setup))


def _from_tree(request: CaseRequest, setup: RunnerSetup, own_process: bool) -> ModelCase:
    model_class = tree.load_class(request.module, request.id.class_name, setup)
    root = Path(setup.tree) if setup.tree else Path()
    if setup.workarounds_file:
        tree.load_file(setup.workarounds_file, setup)
    require_not_skipped(model_class, request.id, setup)
    hook = load_hook(setup.cases_hook, root, partial(tree.load_file, setup=setup)) if setup.cases_hook else None
    keys = (request.id.class_name, request.id.model)
    checkpoint, no_checkpoint = (
        next((named[key] for key in keys if key in named), "") for named in (setup.checkpoints, setup.no_checkpoints)
    )
    return find_model_case(
        model_class,
        sources=(request.source,) if request.source else setup.sources,
        seed=setup.seed,
        task=request.id.task,
        hook=hook,
        tests=root if setup.layout is Layout.TRANSFORMERS else None,
        checkpoint=Path(checkpoint) if checkpoint else None,
        no_checkpoint=no_checkpoint,
        variant=request.id.variant,
        survey=setup.survey,
        apart=setup.limits if own_process else None,
    )


def require_not_skipped(model_class: type, case_id: CaseId, setup: RunnerSetup) -> None:
    """End a case, as ``skipped``, that a registered skip of ours leaves out; other engines have skips of their own."""
    if case_id.engine is not Engine.OWN:
        return
    skip = find_skip(
        model_class,
        backend=case_id.backend,
        shapes=case_id.shapes,
        task=case_id.task,
        disabled=setup.disabled_workarounds,
    )
    if skip is not None:
        until = skip.upstream or f"the model changes: {skip.model_change}"
        message = _clean(f"{skip.reason} Skipped by {skip.id} until {until}", setup)
        raise _Ended(Outcome(kind=OutcomeKind.SKIPPED, stage="source", message=message, workarounds={skip.id: 1}))


def _eager(case: ModelCase, setup: RunnerSetup) -> tuple[Outputs, list[str]]:
    """Eager's outputs, after making sure that they repeat and, as far as weights can, that they react."""
    reference = _reference(case, setup)
    _require_deterministic(case, reference, setup)
    weak = _weak_inputs(case, reference, setup)
    if weak:
        reference = _strengthened(case, reference, setup)
        weak = _weak_inputs(case, reference, setup)
    return reference, [
        f"the check is nearly blind to {name}: changing it moves eager's outputs by {reaction:.3g} times the "
        f"tolerance, {MIN_REACTION:.0f} are wanted"
        for name, reaction in weak.items()
    ]


def _reference(case: ModelCase, setup: RunnerSetup) -> Outputs:
    try:
        reference = run_eager(case.model, case.inputs, setup.seed)
    except Exception as error:
        why = refused_values(case.model, case.inputs) if case.source in GUESSED else ""
        if not why:
            raise
        cause, message = UnavailableCause.UNKNOWN_INPUTS, _clean(why, setup)
        raise _Ended(Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=cause, message=message)) from error
    if not reference:
        message = "the forward returns no tensor, so that nothing can be compared"
        raise _Ended(Outcome(kind=OutcomeKind.ERROR, stage="eager", message=message))
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
    raise _Ended(Outcome(kind=OutcomeKind.NONDETERMINISTIC, stage="eager", message=why))


def _judged(checked: Checked, setup: RunnerSetup) -> Outcome:
    components = checked.components
    if checked.failure is None:
        return Outcome(kind=OutcomeKind.PASS, components=components)
    failure = checked.failure
    if failure.error is not None:
        outcome = failed(failure.error, failure.stage, setup, failure.component)
        kind = outcome.kind if outcome.kind is OutcomeKind.OOM else failure.kind
        return outcome.model_copy(update={"kind": kind, "components": components})
    message = _clean(failure.message, setup)
    return Outcome(
        kind=failure.kind, stage=failure.stage, component=failure.component, message=message, components=components
    )


def failed(error: BaseException, stage: str, setup: RunnerSetup, component: str = "") -> Outcome:
    """The outcome of an exception in ``stage`` of a component; a `StageError` names its own stage."""
    reason = error
    if isinstance(error, StageError):
        stage, reason = error.stage, error.reason
    return Outcome(
        kind=OutcomeKind.OOM if isinstance(reason, MemoryError) else OutcomeKind.ERROR,
        stage=stage,
        component=component,
        message=_clean(said(reason), setup),
        error_type=type(reason).__name__[:MAX_NAME_CHARS],
        **_places(error, setup),
        workarounds=dict(getattr(error, "workarounds", {})),  # those of a foreign exporter that acted before
    )


def _places(error: BaseException, setup: RunnerSetup) -> dict[str, Any]:
    """``location``, the innermost modeling line of an error, or for one of the tree's own files the innermost line
    there, and the ``frames`` of code under test on the way to it."""
    known = frames_of(error)
    own = [f for f in known if _root_of(f[0], setup) in _tree_roots(setup)]
    modeling = [f for f in known if is_modeling(f)]
    if isinstance(error, SyntaxError) and error.filename:
        modeling = [(error.filename, error.lineno or 0, "")]
    found = modeling or ([] if isinstance(error, HookError) else own)
    if not found:
        return {}
    places = {f: _place(f, setup) for f in (*found, *known)}
    frames = [places[f] for f in known if f in own or f in modeling or places[f].file.startswith("transformers/")]
    return {"location": places[found[0]], "frames": tuple(dict.fromkeys(frames))[:MAX_FRAMES]}


def _place(frame: Frame, setup: RunnerSetup) -> Location:
    file = frame[0].removeprefix(f"{_root_of(frame[0], setup)}/")
    return Location(file=file[-MAX_NAME_CHARS:], line=frame[1], function=frame[2][:MAX_NAME_CHARS])


def _tree_roots(setup: RunnerSetup) -> set[str]:
    """The tree's folder as it was named and as Python names it, without links."""
    return {str(Path(setup.tree)), str(Path(setup.tree).resolve())} if setup.tree else set()


def _roots(setup: RunnerSetup) -> list[str]:
    """Folders of this machine that files may lie in, inner ones first: an environment can lie inside the tree."""
    paths = sysconfig.get_paths()
    ours = str(Path(exporters.__file__).parents[1])
    roots = {paths["purelib"], paths["platlib"], paths["stdlib"], ours, *setup.search_path} | _tree_roots(setup)
    return sorted(roots, key=len, reverse=True)


def _root_of(file: str, setup: RunnerSetup) -> str | None:
    return next((root for root in _roots(setup) if file.startswith(f"{root}/")), None)


def _clean(text: str, setup: RunnerSetup) -> str:
    """A message without this machine's folders, at a length and in characters that cross to the trusted side."""
    text = text.encode(errors="replace").decode()
    for root in _roots(setup):
        text = re.sub(rf"{re.escape(root)}(/|(?![\w.-]))", lambda found: "" if found[1] else ".", text)
    if len(text) > MAX_MESSAGE_CHARS:
        half = MAX_MESSAGE_CHARS // 2 - 20
        text = f"{text[:half]}\n[... cut ...]\n{text[-half:]}"
    return text
