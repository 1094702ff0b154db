"""Eager against eager: base writes its weights, inputs and outputs to a file, head runs on them and compares."""

from __future__ import annotations

import os
import stat
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch.utils import _pytree as pytree

from exporters.leaves import named_leaves
from exporters.parity import TensorComparison, compare
from hfexport_bot.runner.checks import described, ties
from hfexport_bot.runner.configurations import Configuration, listed, made_otherwise, with_values_of_base
from hfexport_bot.runner.eager import Outputs, run_eager, undefined_positions
from hfexport_bot.runner.fingerprints import eager_fingerprint
from hfexport_bot.runner.generation import Decoding
from hfexport_bot.runner.probed import Probed, Refusal
from hfexport_bot.runner.progress import Progress
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import MAX_NAME_CHARS, MAX_TRIES, NO_LONGER_TAKEN, EagerChange, OutputChange, Task, largest

#: Most bytes of one file. Tiny models take a few MB; a checkpoint may be larger, and is not compared then.
MAX_BYTES = 512 << 20

_WEIGHTS, _INPUTS, _OUTPUTS = "weights/", "inputs/", "outputs/"
_CONFIGURATION = "configuration"
#: Before the inputs and outputs of a probe.
_PROBE = "probes/{}/"
#: Names listed of weights that do not fit.
_NAMED = 3
#: How much is told of an error on a probe.
_REFUSAL_CHARS = 200


def note_eager(case: ModelCase, outputs: Outputs, stages: Progress, probed: Probed | None = None) -> None:
    """Tell what eager came to, and write it down where head wants it."""
    on_probes = _taken(probed)
    path = stages.ran_eagerly(eager_fingerprint(case.model, case.inputs, case.probes, {"": outputs, **on_probes}))
    if path is not None:
        try:
            write_eager(Path(path), case, outputs, probed)
        except Exception:  # without it, head's eager outputs are not compared, and the case goes on
            traceback.print_exc()


def _taken(probed: Probed | None) -> dict[str, Outputs]:
    """Eager's outputs on those probes that it takes."""
    found = probed.kept() if probed is not None else {}
    return {name: outputs for name, outputs in found.items() if not isinstance(outputs, Refusal)}


def write_eager(path: Path, case: ModelCase, outputs: Outputs, probed: Probed | None = None) -> None:
    """Write what head needs to repeat these forwards, in safetensors; nothing where it is too big."""
    tensors = {
        **{_WEIGHTS + name: tensor for name, tensor in _weights(case.model).items()},
        **_run("", case.inputs, outputs),
    }
    if (configuration := Configuration.of(case.model)) is not None:
        tensors[_CONFIGURATION] = configuration.to_tensor()
    for name, found in _taken(probed).items():
        tensors |= _run(_PROBE.format(name), probed.inputs[name] if probed else {}, found)
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()) > MAX_BYTES:
        return
    own = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}  # tied weights share memory
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_bytes(save(own))
    unfinished.replace(path)


def _run(prefix: str, inputs: Mapping[str, Any], outputs: Outputs) -> dict[str, torch.Tensor]:
    """One forward's inputs and outputs by the names they are written under."""
    return {
        **{f"{prefix}{_INPUTS}{name}": tensor for name, tensor in named_leaves(dict(inputs)).items()},
        **{f"{prefix}{_OUTPUTS}{name}": tensor for name, tensor in outputs.items()},
    }


def compare_eager(path: Path, case: ModelCase, task: Task, seed: int) -> EagerChange:
    """Run head's model on what base wrote. Where whoever made the model gave it another configuration than on base, it
    is made with base's. Raises whatever the model raises on the traced inputs, and ``ValueError`` for a file that is
    none."""
    tensors = load(_read(path))
    case, configuration = _made_as_on_base(case, tensors)
    misfits = _load_weights(case.model, _under(_WEIGHTS, tensors))
    model = Decoding(case.model) if task is Task.GENERATE else case.model
    changes = list(_on_base_run(replace(case, model=model), case.inputs, tensors, seed))
    for name, inputs in Probed(case.model, case.inputs, case.probes, seed).inputs.items():
        given = _under(_PROBE.format(name), tensors)
        moved = {change.name for change in changes if change.note}
        found = _on_probe(case, name[:MAX_NAME_CHARS], inputs, given, seed) if given else ()
        changes += [change for change in found if change.name not in moved]
    moved_ones = tuple(change for change in changes if change.note)
    return EagerChange(
        max_abs=largest(change.max_abs for change in changes),
        moved=moved_ones[:MAX_TRIES],
        weights=misfits,
        configuration=configuration,
    )


def _made_as_on_base(case: ModelCase, given: Mapping[str, torch.Tensor]) -> tuple[ModelCase, str]:
    """The case with base's configuration, and what differed: what only the maker of the model changed moves numbers,
    but not by the model's code. Raises ``ValueError`` where head's class makes no model of it."""
    own = Configuration.of(case.model)
    if own is None or _CONFIGURATION not in given:
        return case, ""
    changes = made_otherwise(Configuration.from_tensor(given[_CONFIGURATION]), own)
    if not changes:
        return case, ""
    try:
        return replace(case, model=with_values_of_base(case.model, changes)), listed(changes)
    except Exception as error:
        raise ValueError(
            f"it is made with another configuration than on base ({listed(changes)}), and head makes no model of "
            f"base's: {described(error)[:_REFUSAL_CHARS]}"
        ) from error


def _on_base_run(
    case: ModelCase, own: Mapping[str, Any], given: Mapping[str, torch.Tensor], seed: int
) -> Iterator[OutputChange]:
    """How the outputs of one forward moved. ``own``: head's inputs for it."""
    inputs = _with_values(own, _under(_INPUTS, given))
    yield from _changes(case, inputs, _under(_OUTPUTS, given), run_eager(case.model, inputs, seed), seed)


def _on_probe(
    case: ModelCase, name: str, own: Mapping[str, Any], given: Mapping[str, torch.Tensor], seed: int
) -> list[OutputChange]:
    try:
        found = list(_on_base_run(case, own, given, seed))
    except Exception as error:  # base's model took these inputs
        text = described(error)[:_REFUSAL_CHARS]
        return [OutputChange(name=f"probe {name}"[:MAX_NAME_CHARS], note=f"{NO_LONGER_TAKEN}, {text}")]
    return [change.model_copy(update={"probe": name}) for change in found]


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and what else a checkpoint of the model has."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}


def _load_weights(model: torch.nn.Module, given: Mapping[str, torch.Tensor]) -> str:
    """Give a model base's weights where they fit; says which do not."""
    own = _weights(model)
    fitting = {name for name in own.keys() & given.keys() if own[name].shape == given[name].shape}
    with torch.no_grad():
        for name in fitting:
            own[name].copy_(given[name])
    parts = {
        "new": [name for name in own if name not in given],
        "gone": sorted(name for name in given if name not in own),
        "of another shape": [name for name in own if name in given and name not in fitting],
    }
    return "; ".join(_listed(names, what) for what, names in parts.items() if names)


def _listed(names: list[str], what: str) -> str:
    shown = ", ".join(name[:MAX_NAME_CHARS] for name in names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{len(names)} {what} ({shown}{more})"


def _with_values(own: Mapping[str, Any], given: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Base's inputs, in the structures that head has for them; what head has besides is left out.

    Raises ``ValueError`` for a structure that head does not have.
    """
    found: dict[str, Any] = {name: value for name, value in own.items() if not named_leaves({name: value})}
    for name in dict.fromkeys(path.partition(".")[0] for path in given):
        if name in given:
            found[name] = given[name]
            continue
        leaves = named_leaves({name: own.get(name)})
        if leaves.keys() != {path for path in given if path.partition(".")[0] == name}:
            raise ValueError(f"the input {name} has another structure than on base")
        values = {id(leaf): given[path] for path, leaf in leaves.items()}
        found[name] = pytree.tree_map(partial(_value_of, values), own[name])
    return found


def _value_of(values: Mapping[int, torch.Tensor], leaf: Any) -> Any:
    return values.get(id(leaf), leaf)


def _changes(
    case: ModelCase, inputs: Mapping[str, Any], expected: Outputs, actual: Outputs, seed: int
) -> Iterator[OutputChange]:
    both = {name: value for name, value in expected.items() if name in actual}
    unlike = {name: said for name, value in both.items() if (said := _form(value, actual[name]))}
    alike = {name: value for name, value in both.items() if name not in unlike}
    now = {name: actual[name] for name in alike}
    exempt = undefined_positions(inputs, alike)
    compared = compare(alike, now, exempt)
    if not all(each.passed for each in compared):
        compared = compare(alike, now, {**exempt, **ties(case.model, inputs, now, seed)})
    yield from (OutputChange(name=name[:MAX_NAME_CHARS], note="gone") for name in expected if name not in actual)
    yield from (OutputChange(name=name[:MAX_NAME_CHARS], note="new") for name in actual if name not in expected)
    yield from (OutputChange(name=name[:MAX_NAME_CHARS], note=said) for name, said in unlike.items())
    yield from map(_change, compared)


def _form(before: torch.Tensor, now: torch.Tensor) -> str:
    if before.dtype != now.dtype:
        return f"{before.dtype} → {now.dtype}".replace("torch.", "")
    return "" if before.shape == now.shape else f"shape {list(before.shape)} → {list(now.shape)}"


def _change(compared: TensorComparison) -> OutputChange:
    note = "" if compared.passed else "moved" if compared.max_rel is not None else "no longer finite"
    return OutputChange(
        name=compared.name[:MAX_NAME_CHARS], note=note, max_abs=compared.max_abs, share=compared.mismatched
    )


def _under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _read(path: Path) -> bytes:
    """A regular file of a limited size, and nothing that waits or leads elsewhere."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as stream:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES + (1 << 20):
            raise ValueError("what base wrote of its eager run is no file of a size to be read")
        return stream.read()
