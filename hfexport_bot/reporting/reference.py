"""The stage reference of docs/extending.md: what each stage does, and the workarounds that are registered for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hfexport_bot.schema import STAGES, WorkaroundInfo

BEGIN = "<!-- stage reference: begin, written by `make docs` -->"
END = "<!-- stage reference: end -->"

#: Headings by group of `STAGES`.
_TITLES = {
    "prepare": "Before an export",
    "dynamo": "torch.export (`dynamo`); the other two run these stages in their middle",
    "onnx": "ONNX (`onnx`)",
    "executorch": "ExecuTorch (`executorch`)",
    "check": "After an export",
}

#: What a stage does, by group and stage.
PURPOSES: dict[str, dict[str, str]] = {
    "prepare": {
        "source": "Finds a small model of the class and inputs for it. A registered skip ends the case here.",
        "eager": "Runs the unpatched model eagerly, reseeded: the reference. Measures that it repeats itself, and that "
        "a change of each input would be noticed; weights are made stronger where it would not.",
    },
    "dynamo": {
        "signature": "Lets input preparers make what a graph cannot compute, empties what the model remembers of "
        "earlier calls, and gives its forward exactly the parameters that the inputs name; flags and numbers become "
        "constants.",
        "model_patches": "Puts patches of torch and of model code in place, for the time of the trace.",
        "pytree": "Tells torch how the caches among inputs and outputs come apart into tensors.",
        "shapes": "Decides which axes of the inputs may vary, and up to which size.",
        "trace": "`torch.export.export`: the model runs once on symbolic sizes, and its operators become a graph.",
        "state_cleanup": "Takes the patches back, and gives the model every attribute that it had before.",
    },
    "onnx": {
        "torch_patches": "Puts patches of torch and of model code in place that only ONNX needs; then torch.export's "
        "own stages run.",
        "onnx_patches": "Puts patches of `torch.onnx`, `onnxscript` and `onnx_ir` in place.",
        "node_fixes": "Offers each node of the traced graph to the node fixes, and again after the decomposition.",
        "decompose": "torch.onnx breaks operators without a translation down into simpler ones.",
        "translate": "Each operator becomes ONNX: by a registered translation, or else by onnxscript's library.",
        "optimize": "onnxscript folds constants and fuses nodes, unless the class is registered as one that it breaks.",
        "ir_fixes": "Changes the finished ONNX graph; then inputs and outputs get their names.",
    },
    "executorch": {
        "backend_preparation": "Makes ready the delegate that will take over parts of the graph.",
        "torch_patches": "Puts patches of torch and of model code in place that only ExecuTorch needs; then "
        "torch.export's own stages run.",
        "executorch_patches": "Puts patches of the `executorch` package in place.",
        "program_fixes": "Rewrites patterns of several nodes in the traced program.",
        "node_fixes": "Offers each node of the traced graph to the node fixes.",
        "lower": "`to_edge_transform_and_lower`: decomposition to the Edge dialect, and partition among delegates.",
        "emit": "`to_executorch`: memory is planned, and the program's bytes are written.",
    },
    "check": {
        "load": "The runtime loads the program.",
        "run": "The runtime runs it on the traced inputs, and on each probe that eager takes.",
        "parity": "Compares every element of every output with eager's.",
    },
}

_ISSUE = re.compile(r"https://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull|discussions)/(\d+)")


def with_reference(document: str, found: Iterable[WorkaroundInfo]) -> str:
    """``document`` with the reference between its markers. Raises ``ValueError`` where it does not have both."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"it has no place for the stage reference; put the lines\n{BEGIN}\n{END}\ninto it")
    return f"{before}{begin}\n\n{stage_reference(list(found))}\n\n{end}{after}"


def stage_reference(found: Sequence[WorkaroundInfo]) -> str:
    """Markdown: every stage in the order in which they run, with its workarounds in the order of their ids."""
    ordered = sorted(found, key=lambda each: each.id)
    lines: list[str] = []
    for group, stages in STAGES.items():
        lines += [f"### {_TITLES[group]}", ""]
        for stage in stages:
            own = [each for each in ordered if _belongs(each, group, stage)]
            lines += [f"**`{stage}`**: {PURPOSES[group][stage]}", "", *map(_entry, own), *([""] if own else [])]
    return "\n".join(lines).rstrip()


def _belongs(each: WorkaroundInfo, group: str, stage: str) -> bool:
    """Skips of each backend stand in the one stage that comes before all backends."""
    return each.stage == stage and (each.backend == group or stage in STAGES["prepare"])


def _entry(each: WorkaroundInfo) -> str:
    kind = "IR fix" if each.kind == "ir_fix" else each.kind.replace("_", " ")
    if each.targets and each.kind in ("patch", "translation", "input_preparer"):
        kind += f" of {', '.join(f'`{target}`' for target in each.targets)}"
    until = f"Until {_link(each.upstream)}." if each.upstream else f"Until the model changes: {each.model_change}."
    return f"- `{each.id}`, {kind}. {each.reason} {until}"


def _link(address: str) -> str:
    issue = _ISSUE.fullmatch(address)
    return f"[{issue[1]}#{issue[2]}]({address})" if issue else f"<{address}>"
