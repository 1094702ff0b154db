"""The one call shape of all exporters, and the checks that come before the first stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils import _pytree as pytree

from exporters.configs import DynamoConfig, coerce
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.inputs import prepare_export_inputs
from exporters.refusals import refuse_names, refuse_tensors, refuse_training
from exporters.registry import Hits, workarounds
from exporters.skeleton import describe_model
from exporters.stages import STAGES, OnStage, OnTrace, StageError, StageRunner

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exporters.artifacts import Artifact
    from exporters.runtime.generation import GenerationExport


@dataclass(frozen=True)
class PreparedInputs:
    """``tensors``: inputs of the graph, by name. ``constants``: flags and numbers that the trace bakes in. ``made``:
    the names among both that preparers made, and ``prepare`` makes them again for other inputs."""

    tensors: dict[str, Any]
    constants: dict[str, Any]
    made: tuple[str, ...] = ()
    prepare: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    skeleton: dict[str, Any] | None = None


class HfExporter(ABC):
    """Turns a model and sample inputs into a program of one backend.

    The model and the inputs come back as they were, also after a failure: patches are reverted, tensors that tracing
    left on modules are removed.
    """

    backend: ClassVar[str]
    config_class: ClassVar[type[DynamoConfig]]

    def export(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, Any],
        config: DynamoConfig | Mapping[str, Any] | None = None,
    ) -> Any:
        """The backend's native program; see `export_artifact` for arguments and errors."""
        return self.export_artifact(model, inputs, config).program

    def export_artifact(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, Any],
        config: DynamoConfig | Mapping[str, Any] | None = None,
        *,
        on_stage: OnStage | None = None,
        on_trace: OnTrace | None = None,
    ) -> Artifact:
        """The native program with the names of its inputs and outputs, bounds, stage times and workarounds hit.

        Args:
            model: in eval mode.
            inputs: keyword arguments of the model's forward; tokenizer and processor output is accepted. Axes that
                should be dynamic need a size of at least 2.
            config: the exporter's config, a dict of its fields, or ``None`` for the defaults.
            on_stage: called with each stage's name as it begins.
            on_trace: called with the program that torch.export gave, before a backend changes it; what it raises ends
                the export.

        Raises:
            ValueError, TypeError: the model, the inputs or the config cannot be exported as they are: a model in
                training mode, labels or another argument that makes a loss, an argument that the forward does not take,
                tensors on another device or of another floating dtype than the model's, or on the meta device.
            StageError: a stage failed.
        """
        checked = coerce(config, self.config_class)
        _check_disabled(checked.disabled, self.backend)
        runner, hits = StageRunner(self.backend, on_stage, on_trace), Hits()
        prepared = prepare_inputs(model, inputs)
        with runner.stage("signature"):
            prepared = _with_made(model, prepared, checked.disabled, hits)
        with torch.no_grad():
            return self._export(model, prepared, checked, runner, hits)

    def export_for_generation(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, Any],
        config: DynamoConfig | Mapping[str, Any] | None = None,
        generation_config: Any = None,
        *,
        multi_token_decode: bool = False,
        on_stage: OnStage | None = None,
        on_step: OnStage | None = None,
        on_trace: OnTrace | None = None,
    ) -> GenerationExport:
        """The programs of encoder, prefill and decode, as ``generate`` really calls them, and a loop over them.

        With pictures or sound among a decoder-only model's inputs, the prefill is split into ``vision_encoder`` (or
        ``audio_encoder``), ``multi_modal_projector``, ``embedding``, ``language_model`` and ``lm_head``. Where a model
        leaves generation to one inside it, as BLIP to its text decoder, a ``prompt_encoder`` comes first: all that the
        model does before.

        Args:
            model: decoder-only or encoder-decoder, in eval mode, with a cache of any kind: keys and values that grow,
                sliding windows, the states of a state-space model, or a mixture.
            inputs: arguments of ``generate`` as a tokenizer or processor makes them: ``input_ids`` of at least two
                prompts of at least two tokens; with an ``attention_mask``, the programs take padded prompts. Or what an
                encoder reads in their place, such as ``input_features``.
            generation_config: settings of ``generate``, the model's own by default; decoding is greedy. With
                ``cache_implementation="static"`` the cache has ``max_length`` places, which must be set.
            multi_token_decode: let ``decode`` take several tokens in one call, as checking drafted tokens needs it.
            on_step: called with the name of each step as its export begins, before its stages.
            on_stage, on_trace: as for `export_artifact`, for each step.

        Raises:
            ValueError: the model does not decode in this way.
            StageError: a stage failed.
        """
        from exporters.generation import capture_steps
        from exporters.generation_settings import ending_of
        from exporters.runtime.generation import GenerationExport

        refuse_training(model)
        captured = capture_steps(model, inputs, generation_config, multi_token_decode=multi_token_decode)
        artifacts = {}
        for name, step in captured.steps.items():
            with _step(name, model, on_step):
                artifacts[name] = self.export_artifact(
                    step.module, step.inputs, config, on_stage=on_stage, on_trace=on_trace
                )
        ending = ending_of(captured.decoder, captured.settings, captured.start, captured.unprompted)
        return GenerationExport(artifacts, ending, captured.media, captured.planes, model)

    def trace_for_generation(
        self,
        model: torch.nn.Module,
        inputs: Mapping[str, Any],
        config: DynamoConfig | Mapping[str, Any] | None = None,
        generation_config: Any = None,
        *,
        on_trace: OnTrace,
        on_stage: OnStage | None = None,
        on_step: OnStage | None = None,
    ) -> None:
        """Trace each step of `export_for_generation`, whose arguments these are, and leave out all that follows: to
        find out by ``on_trace`` whether it is worth it. Raises what that raises."""
        from exporters.generation import capture_steps

        def trace(program: ExportedProgram) -> None:
            on_trace(program)
            raise _Traced

        refuse_training(model)
        for name, step in capture_steps(model, inputs, generation_config).steps.items():
            with _step(name, model, on_step), suppress(_Traced):
                self.export_artifact(step.module, step.inputs, config, on_stage=on_stage, on_trace=trace)

    @abstractmethod
    def _export(
        self, model: torch.nn.Module, inputs: PreparedInputs, config: Any, runner: StageRunner, hits: Hits
    ) -> Artifact: ...


class _Traced(BaseException):
    """Ends an export after its trace. No error, so nothing catches it."""


@contextmanager
def _step(name: str, model: torch.nn.Module, on_step: OnStage | None) -> Iterator[None]:
    """Tell of a step of generation as it begins; its failures say which it was."""
    if on_step is not None:
        on_step(name)
    try:
        yield
    except StageError as error:
        error.add_note(f"This was the {name} of {type(model).__name__}.")
        raise


def _check_disabled(disabled: Collection[str], backend: str) -> None:
    """Raise ``ValueError`` for an id that names no workaround. One of a backend that is not loaded may be right."""
    known = [workaround.id for workaround in workarounds()]
    for workaround_id in disabled:
        owner = workaround_id.partition("/")[0]
        if workaround_id not in known and (owner not in STAGES or owner in ("dynamo", backend)):
            near = get_close_matches(workaround_id, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; registered are {', '.join(known)}"
            raise ValueError(f"disabled names no workaround {workaround_id!r}{hint}")


def prepare_inputs(model: torch.nn.Module, inputs: Mapping[str, Any]) -> PreparedInputs:
    """Check the model and split its inputs; nothing handed in is changed. Raises ``ValueError`` or ``TypeError``."""
    if not isinstance(inputs, Mapping):
        raise TypeError(f"inputs must map argument names of the model's forward to values, got {type(inputs).__name__}")
    refuse_training(model)
    given = {str(name): value for name, value in inputs.items() if value is not None}
    refuse_names(model, given)
    register_cache_pytrees(model)  # or a cache among the inputs would count as a constant
    refuse_tensors(model, given)
    prepared = _split(given)
    if not prepared.tensors:
        raise ValueError("inputs hold no tensor; an export needs at least one sample tensor")
    return prepared


def _split(given: Mapping[str, Any]) -> PreparedInputs:
    tensors: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    for name, value in given.items():
        has_tensor = any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))
        (tensors if has_tensor else constants)[name] = value
    return PreparedInputs(tensors, constants)


def _with_made(model: Any, inputs: PreparedInputs, disabled: Collection[str], hits: Hits) -> PreparedInputs:
    """The inputs with what the registered preparers make of them."""
    given = inputs.tensors | inputs.constants
    prepared = prepare_export_inputs(model, given, hits=hits, disabled=disabled)
    made = tuple(name for name, value in prepared.items() if value is not given.get(name))
    if not made:
        return inputs
    return replace(
        _split(prepared),
        made=made,
        prepare=partial(prepare_export_inputs, model, disabled=disabled),
        skeleton=describe_model(model),
    )
