"""One case from the model's source to parity, as an outcome."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from exporters import Artifact
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.leaves import named_leaves
from exporters.skips import find_skip
from hfexport_bot.runner import tree
from hfexport_bot.runner.checks import Checked, check
from hfexport_bot.runner.eager_change import compare_eager, note_eager
from hfexport_bot.runner.engines import CannotDrive, RepoParts, export, export_generation, trace_generation
from hfexport_bot.runner.executed_lines import ExecutedLines
from hfexport_bot.runner.failures import CaseEnded, clean, failed, root_of, tree_roots
from hfexport_bot.runner.fingerprints import program_fingerprint
from hfexport_bot.runner.generation import NEW_TOKENS, Decoding, blind_spots, check_generation
from hfexport_bot.runner.keeping import Keeper
from hfexport_bot.runner.parts import check_parts
from hfexport_bot.runner.probed import Probed
from hfexport_bot.runner.progress import OnFingerprint, OnStage, Progress, SameAsTwin
from hfexport_bot.runner.reference import prepare_reference, run_reference
from hfexport_bot.runner.sources import (
    Inapplicable,
    ModelCase,
    Unavailable,
    find_model_case,
    load_hook,
)
from hfexport_bot.runner.sources.sizes import count_parameters
from hfexport_bot.schema import (
    MAX_NAME_CHARS,
    MAX_TRIES,
    Backend,
    CaseId,
    CaseRequest,
    Engine,
    Layout,
    Outcome,
    OutcomeKind,
    RunnerSetup,
    Shapes,
    SourceTry,
    Task,
)

#: Says why a case ended after its trace.
SAME_AS_TWIN = "the same graph as on the other side, from the same exporters: what follows was not run again"


#: What is done with a case's model and inputs.
_Work = Callable[[CaseId, ModelCase, RunnerSetup, Progress], Outcome]


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
    executed = None if request.eager_from else ExecutedLines(setup)
    progress = Progress(on_stage, on_fingerprint, request.twin, executed, eager_to=request.eager_to)
    work: _Work = surveyed if request.survey else _checked
    if request.eager_from:
        work = partial(_against_base, eager_from=Path(request.eager_from))
    return examine(request.id, partial(_from_tree, request, setup, own_process), setup, progress, work)


def examine(
    case_id: CaseId, find: Callable[[], ModelCase], setup: RunnerSetup, stages: Progress, work: _Work | None = None
) -> Outcome:
    """What a case comes to whose model and inputs ``find`` gives, from any source; ``work`` is all of it by default.

    ``find`` may raise ``Unavailable``, and what `require_not_skipped` raises.
    """
    try:
        outcome = _run(case_id, find, setup, stages, work or _checked)
    except CaseEnded as ended:
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
        message, tried = clean(error.message, setup), _cleaned(error.tried, setup)
        return Outcome(kind=OutcomeKind.UNAVAILABLE, stage="source", cause=error.cause, message=message, tried=tried)
    except Inapplicable as error:
        return Outcome(kind=OutcomeKind.SKIPPED, stage="source", message=clean(str(error), setup))
    told = _told(case, setup)
    stages.begin("eager")
    register_cache_pytrees(case.model)
    try:
        outcome = work(case_id, case, setup, stages)
    except CaseEnded as ended:
        outcome = ended.outcome
    except Exception as error:  # whatever the code under test raises is its own outcome
        outcome = (
            error.outcome if isinstance(error, CaseEnded) else failed(error, stages.current, setup, stages.component)
        )
    notes = (*(clean(note, setup) for note in case.notes), *outcome.notes)
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
    roots = {file: root for file in files if (root := root_of(file, setup)) in tree_roots(setup)}
    inside = (file.removeprefix(f"{root}/") for file, root in roots.items())
    return tuple(sorted(file for file in inside if len(file) <= MAX_NAME_CHARS))[:MAX_TRIES]


def _cleaned(tried: tuple[SourceTry, ...], setup: RunnerSetup) -> tuple[SourceTry, ...]:
    return tuple(each.model_copy(update={"message": clean(each.message, setup)}) for each in tried[:MAX_TRIES])


def _against_base(
    case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress, *, eager_from: Path
) -> Outcome:
    """Eager on what base wrote, and no export."""
    return Outcome(kind=OutcomeKind.PASS, eager=compare_eager(eager_from, case, case_id.task, setup.seed))


def surveyed(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> Outcome:
    """One eager forward, or one generation, and no export."""
    model = Decoding(case.model) if case_id.task is Task.GENERATE else case.model
    run_reference(replace(case, model=model), setup)
    return Outcome(kind=OutcomeKind.PASS)


def _checked(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> Outcome:
    export_and_check = _generate if case_id.task is Task.GENERATE else _forward
    checked, workarounds, notes = export_and_check(case_id, case, setup, stages)
    noted = tuple(clean(note, setup) for note in (*notes, *checked.notes))
    return _judged(checked, setup).model_copy(update={"workarounds": workarounds, "notes": noted})


#: What a check found, the workarounds hit, and what was noted before it.
_Found = tuple[Checked, dict[str, int], list[str]]


def _forward(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> _Found:
    keep = Keeper(setup.keep)
    keep.tensors("inputs", case.inputs)
    reference, notes = prepare_reference(case, setup)
    keep.tensors("eager_outputs", reference)
    probed = Probed(case.model, case.inputs, case.probes, setup.seed)
    note_eager(case, reference, stages, probed)
    dynamic = case_id.shapes is Shapes.DYNAMIC
    exported = export(
        case,
        case_id.backend,
        engine=case_id.engine,
        dynamic=dynamic,
        disabled=setup.disabled_workarounds,
        on_stage=stages.begin,
        on_trace=partial(_traced, case_id, setup, stages, keep),
    )
    if isinstance(exported, RepoParts):
        return _parts(exported, setup, stages, keep, dynamic, notes)
    keep.artifact("model", exported)
    checked = check(
        exported,
        case,
        reference,
        dynamic=dynamic,
        seed=setup.seed,
        on_stage=stages.begin,
        clean=partial(clean, setup=setup),
        probed=probed,
    )
    keep.outputs("runtime_outputs", exported, case.inputs)
    return checked, exported.workarounds, notes


def _parts(
    parts: RepoParts, setup: RunnerSetup, stages: Progress, keep: Keeper, dynamic: bool, notes: list[str]
) -> _Found:
    """What comes of parts that are judged one by one."""
    for name, artifact in parts.artifacts.items():
        keep.artifact(name, artifact)
    checked = check_parts(
        parts, dynamic=dynamic, seed=setup.seed, on_stage=stages.begin, clean=partial(clean, setup=setup)
    )
    return checked, _hits(parts.artifacts), [*notes, *parts.notes]


def _hits(artifacts: Mapping[str, Artifact]) -> dict[str, int]:
    """How often each workaround acted, all components together."""
    hits: Counter[str] = Counter()
    for artifact in artifacts.values():
        hits.update(artifact.workarounds)
    return dict(hits)


def _generate(case_id: CaseId, case: ModelCase, setup: RunnerSetup, stages: Progress) -> _Found:
    keep = Keeper(setup.keep)
    keep.tensors("inputs", case.inputs)
    reference, notes = prepare_reference(replace(case, model=Decoding(case.model)), setup)
    keep.tensors("eager_outputs", reference)
    note_eager(case, reference, stages)
    notes += blind_spots(case.model, case.inputs, reference, setup.seed)
    stages.begin("signature")  # what generate calls is found out before the first component's own stages
    dynamic = case_id.shapes is Shapes.DYNAMIC
    asked: dict[str, Any] = {
        "engine": case_id.engine,
        "dynamic": dynamic,
        "new_tokens": NEW_TOKENS,
        "disabled": setup.disabled_workarounds,
        "on_stage": stages.begin,
    }
    if stages.awaited > 1 and case_id.backend is not Backend.DYNAMO:
        _end_as_twin(partial(trace_generation, case, case_id.backend, **asked), case_id, setup, stages)
    try:
        exported = export_generation(
            case, case_id.backend, **asked, on_trace=partial(_traced, case_id, setup, stages, keep)
        )
    except CannotDrive as error:
        outcome = failed(error, "run", setup)
        raise CaseEnded(outcome.model_copy(update={"kind": OutcomeKind.UNSUPPORTED, "notes": tuple(notes)})) from error
    if isinstance(exported, RepoParts):
        return _parts(exported, setup, stages, keep, dynamic, notes)
    for name, artifact in exported.artifacts.items():
        keep.artifact(name, artifact)
    notes += getattr(exported, "notes", ())
    checked = check_generation(
        exported, case, dynamic=dynamic, seed=setup.seed, on_stage=stages.begin, clean=partial(clean, setup=setup)
    )
    return checked, _hits(exported.artifacts), notes


class _OtherGraph(Exception):
    """A component's graph is not that of the other side's case."""


def _end_as_twin(trace: Callable[..., None], case_id: CaseId, setup: RunnerSetup, stages: Progress) -> None:
    """Trace all components before any is exported, which takes a backend many times as long: where their graphs are
    those of the twin, the case ends here. Otherwise, and whatever goes wrong, it is run as ever."""

    def compare(program: ExportedProgram) -> None:
        stages.traced(program_fingerprint(program, case_id, setup))
        if not stages.follows_twin():
            raise _OtherGraph

    with suppress(Exception):  # the run proper meets it too, and tells of it
        trace(on_trace=compare)
    stages.trace_again()


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
        survey=request.survey,
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
        message = clean(f"{skip.reason} Skipped by {skip.id} until {until}", setup)
        raise CaseEnded(Outcome(kind=OutcomeKind.SKIPPED, stage="source", message=message, workarounds={skip.id: 1}))


def _judged(checked: Checked, setup: RunnerSetup) -> Outcome:
    components = checked.components
    if checked.failure is None:
        return Outcome(kind=OutcomeKind.PASS, components=components)
    failure = checked.failure
    if failure.error is not None:
        outcome = failed(failure.error, failure.stage, setup, failure.component)
        kind = outcome.kind if outcome.kind is OutcomeKind.OOM else failure.kind
        # What is said of a probe names the error itself.
        told = {"message": clean(failure.message, setup), "error_type": ""} if failure.probe else {}
        return outcome.model_copy(update={"kind": kind, "components": components, **told})
    message = clean(failure.message, setup)
    return Outcome(
        kind=failure.kind, stage=failure.stage, component=failure.component, message=message, components=components
    )
