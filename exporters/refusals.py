"""What cannot be exported as it is handed in: one error each, before the first stage, that says what to do."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

import torch

from exporters.leaves import named_leaves


def refuse_training(model: torch.nn.Module) -> None:
    """Raise ``ValueError`` for a model in training mode, whose dropout would be traced."""
    if model.training:
        raise ValueError(f"{type(model).__name__} is in training mode; call model.eval() before exporting it")


def refuse_names(model: torch.nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for inputs that the forward does not take, and for those that make it compute a loss."""
    model_name = type(model).__name__
    signature = inspect.signature(model.forward).parameters
    open_ended = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in signature.values())
    parameters = [name for name, p in signature.items() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    for name, value in inputs.items():
        near = get_close_matches(name, parameters, n=1, cutoff=0.8 if open_ended else 0.6)
        # What a forward with **kwargs would pass along may still be a slip of the pen.
        slip = bool(near) and near[0] not in inputs and isinstance(value, torch.Tensor)
        if name not in parameters and (slip or not open_ended):
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(parameters)}"
            raise ValueError(f"{model_name}.forward takes no input {name!r}{hint}")
        if makes_a_loss(model_name, name, value):
            raise ValueError(
                f"{name} makes {model_name} compute a loss, which belongs to training; leave it out of the inputs"
            )


def refuse_ignored(model_name: str, parameters: Collection[str], used: Mapping[str, bool]) -> None:
    """Raise ``ValueError`` for a tensor that the forward takes by its ``**kwargs`` only and that the graph, which
    ``used`` tells of by path, does nothing with."""
    roots = {path.partition(".")[0] for path in used} - set(parameters)
    for root in sorted(roots):
        if not any(is_used for path, is_used in used.items() if path.partition(".")[0] == root):
            raise ValueError(f"{model_name}.forward takes no input {root!r}: it is passed along, and nothing uses it")


def makes_a_loss(model_name: str, name: str, value: Any) -> bool:
    """Whether an input makes a forward compute a loss, by the names that transformers gives such arguments.

    SAM's ``input_labels`` tell what its points mean.
    """
    if name == "return_loss":
        return bool(value)
    if name in ("start_positions", "end_positions"):
        return "QuestionAnswering" in model_name
    return "label" in name and not name.startswith("input_")


def refuse_tensors(model: torch.nn.Module, inputs: Mapping[str, Any]) -> None:
    """Raise ``ValueError`` for weights or inputs without values (on the meta device), inputs on a device that holds
    none of the model, and floating inputs of a dtype that no weight has."""
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    given = named_leaves(dict(inputs))
    for owner, tensors in ((f"{type(model).__name__}'s weights", weights), ("inputs", given)):
        if empty := [name for name, tensor in tensors.items() if tensor.device.type == "meta"]:
            raise ValueError(
                f"{owner} on the meta device have no values ({_some(empty)}); load or make them on a real device first"
            )
    devices = sorted({str(tensor.device) for tensor in weights.values()})
    for name, tensor in given.items():
        if devices and str(tensor.device) not in devices:
            raise ValueError(
                f"{name} is on {tensor.device} and {type(model).__name__} on {' and '.join(devices)}; "
                f"move it with .to({devices[0]!r})"
            )
    _refuse_dtypes(model, inputs)


def _refuse_dtypes(model: torch.nn.Module, inputs: Mapping[str, Any]) -> None:
    dtypes = sorted({str(weight.dtype) for weight in model.parameters() if weight.is_floating_point()})
    # A cache is not looked at: the model made it, and may keep states in a wider dtype than its weights.
    for name, tensor in inputs.items():
        if not isinstance(tensor, torch.Tensor) or not tensor.is_floating_point():
            continue
        if dtypes and str(tensor.dtype) not in dtypes:
            raise ValueError(
                f"{name} is {tensor.dtype} and the weights of {type(model).__name__} are {' and '.join(dtypes)}; "
                f"convert it with .to({dtypes[0]})"
            )


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
