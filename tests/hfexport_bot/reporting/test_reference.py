from __future__ import annotations

from pathlib import Path

import pytest

from hfexport_bot.reporting.reference import BEGIN, END, PURPOSES, stage_reference, with_reference
from hfexport_bot.schema import STAGES, Backend, WorkaroundInfo

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"


def _info(workaround_id: str, **fields: object) -> WorkaroundInfo:
    backend, stage, _ = workaround_id.split("/")
    given = {"kind": "node_fix", "reason": "It is off.", "model_change": "use another", **fields}
    return WorkaroundInfo.model_validate({"id": workaround_id, "backend": Backend(backend), "stage": stage, **given})


@pytest.mark.process
def test_the_page_lists_what_is_registered(listed: tuple[WorkaroundInfo, ...]) -> None:
    text = PAGE.read_text()
    mend = f"docs/{PAGE.name} is not up to date; run: hfexport-bot workarounds list --update docs/{PAGE.name}"
    assert text == with_reference(text, listed), mend


def test_every_stage_has_its_purpose() -> None:
    assert {group: tuple(stages) for group, stages in PURPOSES.items()} == STAGES
    reference = stage_reference([])
    places = [
        reference.index(f"**`{stage}`**: {PURPOSES[group][stage]}") for group in STAGES for stage in STAGES[group]
    ]
    assert places == sorted(places)
    assert len(set(places)) == sum(map(len, STAGES.values()))


def test_workarounds_stand_in_their_stage_by_id_with_reason_and_end() -> None:
    found = [
        _info("executorch/node_fixes/b"),
        _info("onnx/node_fixes/z", upstream="https://github.com/a/b/issues/7", model_change=""),
        _info("onnx/node_fixes/c", upstream="https://example.org/7", model_change=""),
        _info("onnx/torch_patches/p", kind="patch", targets=("torch.where", "torch.nonzero")),
        _info("onnx/source/s", kind="skip", reason="Gate: It hangs.", targets=("Gate",)),
    ]
    reference = stage_reference(found)
    assert reference == stage_reference(found[::-1])
    entries = [line for line in reference.splitlines() if line.startswith("- ")]
    assert entries == [
        "- `onnx/source/s`, skip. Gate: It hangs. Until the model changes: use another.",
        "- `onnx/torch_patches/p`, patch of `torch.where`, `torch.nonzero`. It is off. "
        "Until the model changes: use another.",
        "- `onnx/node_fixes/c`, node fix. It is off. Until <https://example.org/7>.",
        "- `onnx/node_fixes/z`, node fix. It is off. Until [a/b#7](https://github.com/a/b/issues/7).",
        "- `executorch/node_fixes/b`, node fix. It is off. Until the model changes: use another.",
    ]


def test_only_what_stands_between_the_markers_changes() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    written = with_reference(page, [])
    assert written == f"before\n{BEGIN}\n\n{stage_reference([])}\n\n{END}\nafter\n"
    assert with_reference(written, []) == written


@pytest.mark.parametrize("page", ["", BEGIN, f"{END}\n{BEGIN}"])
def test_a_page_without_both_markers_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="no place for the stage reference"):
        with_reference(page, [])
