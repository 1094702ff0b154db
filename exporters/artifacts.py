"""Artifact: an exported program with all that is needed to run it as the model is called."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from exporters.configs import DynamoConfig
from exporters.dynamo.saved import load_pt2, pytree_classes
from exporters.dynamo.shapes import AxisBound
from exporters.leaves import named_leaves
from exporters.saved_config import config_from_json, config_to_json

if TYPE_CHECKING:
    from exporters.runtime.session import Session

#: Version of what `Artifact.save` writes.
FORMAT = 1

#: Name of the file beside the program that holds everything else of a saved artifact.
METADATA_FILE = "artifact.json"
PROGRAM_FILES = {"dynamo": "model.pt2", "onnx": "model.onnx", "executorch": "model.pte"}

#: Types of the constants that a saved artifact keeps.
_JSON = (bool, int, float, str)

_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "executorch")


@dataclass
class Artifact:
    """A program and how to call it.

    Attributes:
        backend: ``dynamo``, ``onnx`` or ``executorch``.
        program: the native program; for a loaded ONNX or ExecuTorch artifact the path of its file.
        input_paths, output_paths: the tensors of the graph by their paths in the model's inputs and outputs, in order.
        axes: what may vary, and how far. input_dtypes: of each input, such as ``int64``.
        constants: non-tensor arguments of forward that are baked in.
        stage_seconds: wall time by stage. workarounds: hits by id.
        made: names of inputs that `prepare` makes from the others, of what a graph cannot compute; ``skeleton``
            describes the model that it asks.
        versions: packages that a loaded artifact was exported with; empty for one exported here.
    """

    backend: str
    program: Any
    input_paths: tuple[str, ...]
    output_paths: tuple[str, ...]
    axes: tuple[AxisBound, ...] = ()
    input_dtypes: tuple[str, ...] = ()
    config: DynamoConfig | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    prepare: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    skeleton: dict[str, Any] | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    workarounds: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @cached_property
    def session(self) -> Session:
        """The program loaded in its runtime. Raises ``UnsupportedByRuntime`` where the runtime cannot hold it."""
        from exporters.runtime import open_session

        return open_session(self)

    def __call__(self, **inputs: Any) -> dict[str, torch.Tensor]:
        """Run in the artifact's own runtime: inputs as for the model's forward, outputs by path.

        Raises ``ValueError`` for an input the graph does not have, one that is missing, or one that does not fit.
        """
        tensors = self.bind(inputs)
        self._check_sizes(dict(zip(self.input_paths, tensors, strict=True)))
        return self.session.run(tensors)

    def bind(self, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """The graph's input tensors in graph order. Raises ``ValueError`` for unknown, missing or changed inputs."""
        inputs = {name: value for name, value in inputs.items() if value is not None}
        if self.prepare is not None:
            try:
                inputs = self.prepare(inputs)
            except Exception as error:  # the model's own code refuses what it cannot count in any way it likes
                reason = f"{type(error).__name__}: {error}"
                raise ValueError(f"{', '.join(self.made)} cannot be made from the inputs ({reason})") from error
        tensors = named_leaves({name: value for name, value in inputs.items() if name not in self.constants})
        for name, value in self.constants.items():
            if name in inputs and _plain(inputs[name]) != _plain(value):
                raise ValueError(f"{name} was exported as {value!r} and cannot be {inputs[name]!r}")
        unknown = [name for name in tensors if name not in self.input_paths]
        unknown += [name for name, value in inputs.items() if self._is_unknown_setting(name, value)]
        missing = [name for name in self.input_paths if name not in tensors]
        if unmade := [name for name in missing if name.partition(".")[0] in self.made and self.prepare is None]:
            raise ValueError(
                f"{', '.join(unmade)} is made from the other inputs by a model that cannot be built again here; "
                "pass what exporters.inputs.prepare_export_inputs(model, inputs) makes"
            )
        if unknown or missing:
            raise ValueError(
                f"inputs do not fit the graph: unknown {unknown or 'none'}, missing {missing or 'none'}; "
                f"it takes {list(self.input_paths)}"
            )
        return [tensors[name] for name in self.input_paths]

    def _is_unknown_setting(self, name: str, value: Any) -> bool:
        return value is not None and name not in self.constants and not named_leaves({name: value})

    def _check_sizes(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Say what a runtime would refuse with a code: dtypes, ranks, and sizes beyond the bounds."""
        for name, dtype in zip(self.input_paths, self.input_dtypes, strict=False):
            given = str(tensors[name].dtype).removeprefix("torch.")
            if given != dtype:
                raise ValueError(f"{name} is {given} and was exported as {dtype}")
        for name in self.input_paths:
            axes = [axis for axis in self.axes if axis.input == name]
            if axes and tensors[name].dim() != len(axes):
                raise ValueError(f"{name} has {tensors[name].dim()} axes and was exported with {len(axes)}")
            for axis, size in zip(axes, tensors[name].shape, strict=True) if axes else ():
                if not axis.dynamic and size != axis.lower:
                    said = f"axis {axis.axis} of {name} is {size} and was exported as {axis.lower}, fixed"
                    error = ValueError(said)
                    if axis.fixed_at:
                        error.add_note(f"fixed by {axis.fixed_at}")
                    raise error
                if axis.upper is not None and size > axis.upper:
                    raise ValueError(f"axis {axis.axis} of {name} is {size}, at most {axis.upper} was exported")

    def save(self, folder: Path | str) -> Path:
        """Write the program and its metadata into ``folder``, which is made; returns the program's path.

        Raises ``TypeError`` for a config that JSON cannot hold, before anything is written.
        """
        from exporters.runtime import write_program

        folder = Path(folder)
        metadata = json.dumps(self.metadata(), indent=2)
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / PROGRAM_FILES[self.backend]
        write_program(self, target)
        (folder / METADATA_FILE).write_text(metadata + "\n")
        return target

    def metadata(self) -> dict[str, Any]:
        """Everything but the program, JSON-native. Constants that JSON does not hold are left out."""
        return {
            "format": FORMAT,
            "backend": self.backend,
            "input_paths": list(self.input_paths),
            "output_paths": list(self.output_paths),
            "axes": [{name: value for name, value in asdict(axis).items() if name != "fixed_at"} for axis in self.axes],
            "input_dtypes": list(self.input_dtypes),
            "constants": {name: value for name, value in self.constants.items() if _is_json(value)},
            "made": list(self.made),
            "skeleton": self.skeleton,
            "config": None if self.config is None else config_to_json(self.config),
            "classes": pytree_classes(self.program) if self.backend == "dynamo" else [],
            "stage_seconds": self.stage_seconds,
            "workarounds": self.workarounds,
            "versions": self.versions or versions(),
        }

    @classmethod
    def load(cls, folder: Path | str, *, allow_pickle: bool = False) -> Artifact:
        """Read what `save` wrote, in any process.

        ONNX and ExecuTorch programs run without transformers and the model's code. A ``.pt2`` file may hold pickled
        objects, so it is read only with ``allow_pickle=True``, for files that you trust; and the classes of its inputs
        and outputs (a cache, a ModelOutput) are imported with it.

        Raises:
            ValueError: the folder is no saved artifact, or damaged, or of another format version, or it is a ``.pt2``
                without leave, or one whose classes are not to be found here.
        """
        metadata = read_json(Path(folder) / METADATA_FILE)
        try:
            backend = metadata["backend"]
            file = Path(folder) / PROGRAM_FILES[backend]
            saved = metadata["config"]
            artifact = cls(
                backend=backend,
                program=file,
                input_paths=tuple(metadata["input_paths"]),
                output_paths=tuple(metadata["output_paths"]),
                axes=tuple(AxisBound(**axis) for axis in metadata["axes"]),
                input_dtypes=tuple(metadata["input_dtypes"]),
                config=None if saved is None else config_from_json(backend, saved),
                constants=metadata["constants"],
                made=tuple(metadata.get("made", ())),
                skeleton=metadata.get("skeleton"),
                stage_seconds=metadata["stage_seconds"],
                workarounds=metadata["workarounds"],
                versions=metadata["versions"],
            )
            classes = list(metadata["classes"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{Path(folder) / METADATA_FILE} is damaged ({reason}); export and save anew") from error
        if artifact.made and artifact.skeleton is not None:
            artifact.prepare = _preparer(artifact.skeleton, () if artifact.config is None else artifact.config.disabled)
        if not file.is_file():
            raise ValueError(f"{file} is missing: {METADATA_FILE} beside it describes it")
        if backend == "dynamo":
            if not allow_pickle:
                raise ValueError(f"{file} may run code as it is read; pass allow_pickle=True if you trust it")
            artifact.program = load_pt2(file, classes)
        return artifact


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_json(item) for item in value)
    return isinstance(value, _JSON)


def _plain(value: Any) -> str:
    """A constant as text that is the same before it is saved and after: JSON knows no tuples."""
    return json.dumps(value, default=repr)


def _preparer(described: Mapping[str, Any], disabled: Collection[str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What `Artifact.prepare` does in a process that has no model: it asks one without weights, built at first use."""
    model: Any = None

    def prepare(inputs: Mapping[str, Any]) -> dict[str, Any]:
        nonlocal model
        from exporters.inputs import prepare_export_inputs
        from exporters.skeleton import build_skeleton

        model = model or build_skeleton(described)
        return prepare_export_inputs(model, inputs, disabled=disabled)

    return prepare


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file of a saved artifact. Raises ``ValueError`` where there is none of this format version."""
    try:
        found = json.loads(file.read_text())
    except OSError as error:
        raise ValueError(f"{file.parent} is no saved export: {file.name} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ValueError(f"{file} is damaged: it is no JSON ({error})") from error
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise ValueError(f"{file} has format {version!r} and this version reads format {FORMAT}; export and save anew")
    return dict(found)


def versions() -> dict[str, str]:
    """Installed versions of the packages that shape an export."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
