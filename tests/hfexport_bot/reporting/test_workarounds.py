from __future__ import annotations

from hfexport_bot.reporting.workarounds import render_workarounds
from hfexport_bot.schema import Backend, WorkaroundInfo


def _info(name: str, **fields: object) -> WorkaroundInfo:
    return WorkaroundInfo.model_validate(
        {
            "id": f"onnx/torch_patches/{name}",
            "kind": "patch",
            "backend": Backend.ONNX,
            "stage": "torch_patches",
            "reason": f"{name} is wrong.",
            **fields,
        }
    )


def test_each_says_why_and_until_when() -> None:
    text = render_workarounds(
        [_info("one", upstream="https://github.com/a/b/issues/1"), _info("two", model_change="x")]
    )
    lines = text.splitlines()
    assert lines[0] == "onnx/torch_patches"
    assert [line.split() for line in lines[3:]] == [
        ["one", "one", "is", "wrong.", "https://github.com/a/b/issues/1"],
        ["two", "two", "is", "wrong.", "the", "model", "changes:", "x"],
    ]


def test_they_stand_by_backend_and_stage_in_the_order_of_an_export() -> None:
    places = ["onnx/optimize", "onnx/node_fixes", "dynamo/source", "onnx/optimize", "dynamo/pytree", "onnx/odd"]
    found = [
        _info(str(number), id=f"{place}/{number}", backend=place.split("/")[0], stage=place.split("/")[1])
        for number, place in enumerate(places)
    ]
    headers = [line for line in render_workarounds(found).splitlines() if "/" in line]
    assert headers == ["dynamo/source", "dynamo/pytree", "onnx/node_fixes", "onnx/optimize", "onnx/odd"]


def test_paths_that_lead_nowhere_are_named() -> None:
    text = render_workarounds([_info("gone", targets=("torch.a", "torch.b"), unresolved=("torch.b",))])
    assert text.endswith("\n\nonnx/torch_patches/gone: torch.b does not resolve")


def test_text_of_the_untrusted_side_stays_on_its_line() -> None:
    text = render_workarounds([_info("evil", reason="a\n::error::b\x1b[31m")])
    assert "::error::" not in text
    assert "\x1b" not in text
