"""Engine ``repo``: the revision's own ``transformers.exporters``, whose results are judged like ours."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from exporters import Artifact, DynamoConfig, DynamoExporter, StageError
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.generation import capture_steps
from exporters.generation_settings import ending_of
from exporters.runtime.generation import Ending, GenerationExport
from exporters.stages import OnTrace
from hfexport_bot.runner.engines.artifact import Prepare, RepoArtifact, is_plain, make_artifact
from hfexport_bot.runner.engines.cache_nodes import CacheNodes
from hfexport_bot.runner.engines.observed import Observer, Traced
from hfexport_bot.runner.engines.package import ExportersPackage
from hfexport_bot.runner.engines.parts import SPLIT_GENERATION, RepoParts, forward_split, part_cases
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import Backend

#: Its function that makes further inputs of the given ones, in place.
_PREPARE = "precompute_export_inputs"

#: Name of a model that is exported as it is.
_WHOLE = "model"

#: The parts that our generation loop can run.
_DRIVEN = {"prefill", "decode"}


class RepoStageError(StageError):
    """An export of the revision's own exporters failed. ``workarounds``: which patches and fixes acted before."""

    def __init__(self, backend: Backend, observer: Observer, cause: BaseException) -> None:
        super().__init__(str(backend), observer.stage, cause)
        self.workarounds = dict(observer.hits)


class CannotDrive(ValueError):
    """There is nothing that the generation loop could run; the message says why."""


class RepoGeneration(GenerationExport):
    """The parts that foreign exporters gave; ``notes`` say what they did not give."""

    def __init__(self, artifacts: Mapping[str, Artifact], encoder: Artifact | None, ending: Ending) -> None:
        super().__init__(artifacts if encoder is None else {"encoder": encoder, **artifacts}, ending)
        left_out = "transformers.exporters leaves out the encoder; what decoding starts from is given by ours"
        self.notes = () if encoder is None else (left_out,)


def export_repo(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace | None = None,
    package: ExportersPackage | None = None,
) -> RepoArtifact | RepoParts:
    """Export a case with the revision's own exporters: whole, or in the parts that they split its model into.

    Raises ``StageError`` for what they raise, `NoEngine` where there are none.
    """
    package = package or ExportersPackage.find()
    exporter = package.exporter(backend)
    config = package.config(backend, exporter, dynamic=dynamic)
    observer = Observer(package, backend, on_stage, on_trace)
    register_cache_pytrees(case.model)  # for the names of what they flatten in their own way
    nodes = CacheNodes()
    model = copy.deepcopy(case.model)  # they may leave it changed, and eager must stay as it was
    split = forward_split(package, model)

    def exported() -> dict[str, Any]:
        own = replace(case, model=model, probes={})
        parts = {_WHOLE: own} if split is None else part_cases(split, own)
        observer.parts = () if split is None else tuple(parts)
        return {part: exporter.export(each.model, _copied(each.inputs), config=config) for part, each in parts.items()}

    results = _exported(observer, nodes, disabled, exported, package, backend)
    if len(observer.traced) != len(results):
        raise _untraced(observer, backend, len(results))
    programs = {part: next(iter(_programs(result).values())) for part, result in results.items()}
    cases = {_WHOLE: case} if split is None else part_cases(split, case)
    artifacts = _artifacts(package, cases, backend, programs, observer.traced, nodes)
    artifacts[next(iter(artifacts))].workarounds = dict(observer.hits)
    note = "transformers.exporters takes the model in parts, each judged on its own; what joins them is not exported"
    return artifacts[_WHOLE] if split is None else RepoParts(artifacts, cases, (note,))


def export_generation_repo(
    case: ModelCase,
    backend: Backend,
    *,
    dynamic: bool,
    new_tokens: int,
    disabled: Collection[str],
    on_stage: Callable[[str, str], None],
    on_trace: OnTrace | None = None,
    package: ExportersPackage | None = None,
) -> RepoGeneration | RepoParts:
    """Export the parts that the revision's own exporters split ``generate`` into, for our loop to run, or to be judged
    one by one where it cannot.

    Raises as `export_repo` does, and `CannotDrive` where there are no such parts.
    """
    package = package or ExportersPackage.find()
    exporter = package.exporter(backend)
    name = type(case.model).__name__
    if not hasattr(exporter, "export_for_generation"):
        raise CannotDrive(f"{type(exporter).__name__} of this revision has no export_for_generation")
    config = package.config(backend, exporter, dynamic=dynamic)
    observer = Observer(package, backend, on_stage, on_trace)
    register_cache_pytrees(case.model)  # for the names of what they flatten in their own way
    nodes = CacheNodes()
    model: Any = copy.deepcopy(case.model)
    settings = {} if dynamic else {"generation_config": _static_settings(case, new_tokens)}
    result = _exported(
        observer,
        nodes,
        disabled,
        lambda: exporter.export_for_generation(model, _copied(case.inputs), config, **settings),
        package,
        backend,
    )
    programs = _programs(result)
    if len(observer.traced) != len(programs):
        raise _untraced(observer, backend, len(programs))
    artifacts = {
        part: make_artifact(backend, program, traced, nodes, constants={})
        for (part, program), traced in zip(programs.items(), observer.traced, strict=True)
    }
    try:
        _require_driven(name, artifacts, case)
        encoder, start = _stand_in_encoder(case, dynamic) if model.config.is_encoder_decoder else (None, None)
        generation: RepoGeneration | RepoParts = RepoGeneration(artifacts, encoder, ending_of(case.model, start=start))
    except CannotDrive as error:
        split = package.function(SPLIT_GENERATION)
        cases = {} if split is None else part_cases(functools.partial(split, **settings), case)
        if cases.keys() != programs.keys():
            raise
        artifacts = _artifacts(package, cases, backend, programs, observer.traced, nodes)
        generation = RepoParts(artifacts, cases, (f"each part was judged on its own: {error}",))
    # The registries do not tell parts apart.
    generation.artifacts[next(iter(programs))].workarounds = dict(observer.hits)
    return generation


def _artifacts(
    package: ExportersPackage,
    cases: Mapping[str, ModelCase],
    backend: Backend,
    programs: Mapping[str, Any],
    traced: Sequence[Traced],
    nodes: CacheNodes,
) -> dict[str, RepoArtifact]:
    """The programs with what their exporters make of the inputs that each is called with."""
    artifacts = {}
    for (part, program), trace in zip(programs.items(), traced, strict=True):
        prepare, made, constants = _preparation(package, cases[part].model, cases[part].inputs)
        artifacts[part] = make_artifact(backend, program, trace, nodes, constants=constants, made=made, prepare=prepare)
    return artifacts


def _exported(
    observer: Observer,
    nodes: CacheNodes,
    disabled: Collection[str],
    export: Callable[[], Any],
    package: ExportersPackage,
    backend: Backend,
) -> Any:
    """What ``export`` gives; what it raises, as a ``StageError``."""
    try:
        with nodes.used(), observer.watching(disabled):
            return export()
    except Exception as error:
        raise RepoStageError(backend, observer, package.reason(error)) from error


def _programs(result: Any) -> dict[str, Any]:
    """The native programs by part: of a model object with components, of a mapping, or the program itself."""
    components = getattr(result, "components", result)
    if isinstance(components, Mapping):
        return {str(name): getattr(part, "program", part) for name, part in components.items()}
    return {"model": result}


def _untraced(observer: Observer, backend: Backend, wanted: int) -> StageError:
    count = len(observer.traced)
    error = RuntimeError(
        f"the exporter called torch.export {count} times for {wanted} programs, so the names of inputs and outputs are "
        "unknown; export with engine own"
    )
    return RepoStageError(backend, observer, error)


def _copied(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs with tensors and mappings of their own: preparers write into both."""
    return copy.deepcopy(dict(inputs))


def _preparation(
    package: ExportersPackage, model: torch.nn.Module, given: Mapping[str, Any]
) -> tuple[Prepare | None, tuple[str, ...], dict[str, Any]]:
    """What makes further inputs, the names of those, and the arguments that are no tensors."""
    function = package.function(_PREPARE)
    inputs: dict[str, Any] = dict(given)
    prepare: Prepare | None = None
    if function is not None:

        def prepare(inputs: Mapping[str, Any]) -> dict[str, Any]:
            prepared = _copied(inputs)
            with torch.no_grad():
                function(model, prepared)
            return prepared

        inputs = prepare(given)
    made = tuple(name for name, value in inputs.items() if name not in given or _differs(value, given[name]))
    constants = {name: value for name, value in inputs.items() if value is not None and is_plain(value)}
    return (prepare if made else None), made, constants


def _differs(value: Any, other: Any) -> bool:
    """Whether two inputs are not the same; tensors of one shape are compared by their values."""
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return not torch.equal(value, other)
    return type(value) is not type(other)


def _static_settings(case: ModelCase, new_tokens: int) -> Any:
    """Settings of ``generate`` with a cache of fixed size, since graphs of static shapes take no other."""
    model: Any = case.model
    if "input_ids" not in case.inputs:
        raise CannotDrive(f"{type(model).__name__} reads no text, and its static cache has no length to go by")
    settings = copy.deepcopy(model.generation_config)
    settings.cache_implementation = "static"
    settings.max_cache_len = settings.max_length = case.inputs["input_ids"].shape[1] + new_tokens
    return settings


def _require_driven(name: str, artifacts: Mapping[str, RepoArtifact], case: ModelCase) -> None:
    """Raise `CannotDrive` for parts that our loop cannot run from a prompt to tokens."""
    parts = ", ".join(artifacts)
    if artifacts.keys() != _DRIVEN:
        raise CannotDrive(
            f"transformers.exporters splits {name} into {parts}, and leaves embedding tokens and merging features "
            "into them to the caller"
        )
    for part, artifact in artifacts.items():
        rank = sum(axis.input == "attention_mask" for axis in artifact.axes)
        if "attention_mask" in artifact.input_paths and rank != case.inputs["attention_mask"].dim():
            raise CannotDrive(
                f"{part} takes an attention_mask of {rank} axes, ready made, and the loop has the prompt's"
            )
        known = {"input_ids", "attention_mask", "position_ids", *_encoded(case)}
        known |= {path for path in artifact.input_paths if ".layers." in path or path in artifact.made}
        odd = [path for path in artifact.input_paths if path not in known and path.partition(".")[0] not in known]
        if odd:
            raise CannotDrive(f"{part} takes {', '.join(odd)}, which the loop cannot make")
    prefill, decode = artifacts["prefill"], artifacts["decode"]
    given = {*prefill.output_paths, *prefill.input_paths, *decode.made}
    if missing := [path for path in decode.input_paths if ".layers." in path and path not in given]:
        raise CannotDrive(f"decode takes {', '.join(missing)}, which prefill does not give")


def _encoded(case: ModelCase) -> tuple[str, ...]:
    """What a decoder takes besides its cache, where an encoder reads the prompt."""
    model: Any = case.model
    return ("decoder_input_ids", "encoder_outputs", *case.inputs) if model.config.is_encoder_decoder else ()


def _stand_in_encoder(case: ModelCase, dynamic: bool) -> tuple[Artifact, tuple[int, ...] | None]:
    """Our own export of the encoder, in torch, and the tokens that decoding starts with."""
    if not dynamic:
        raise CannotDrive(f"the loop knows no static cache of an encoder-decoder such as {type(case.model).__name__}")
    try:
        captured = capture_steps(case.model, case.inputs)
        step = captured.steps["encoder"]
        encoder = DynamoExporter().export_artifact(step.module, step.inputs, DynamoConfig())
    except (ValueError, StageError) as error:
        raise CannotDrive(f"the exporters give no encoder, and ours cannot stand in for it: {error}") from error
    encoder.workarounds = {}  # ours are not what this case is about
    return encoder, captured.start
