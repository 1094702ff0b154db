"""docs/extending.md: every block of Python in it runs, and does what the page says."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from torch import nn

from exporters import DynamoExporter, OnnxExporter
from exporters.registry import Hits, Kind, apply_fx_program_fixes, workarounds
from exporters.skips import EXPORT_SKIPS, ONNX_DISABLE_OPTIMIZE

pytestmark = pytest.mark.export

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
#: Blocks that begin with a file's name, by that name; what has none is a script.
FILES = {match[1]: block for block in BLOCKS if (match := re.match(r"# (\w+\.py)\n", block))}
SCRIPTS = [block for block in BLOCKS if block not in FILES.values()]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the page's files, which can be imported."""
    for name, block in FILES.items():
        (tmp_path / name).write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name.removesuffix(".py"), None)


def test_the_page_has_an_example_from_the_failure_to_the_test_and_the_other_kinds() -> None:
    assert list(FILES) == ["modeling_gate.py", "export_workarounds.py", "test_export_workarounds.py"]
    assert len(SCRIPTS) == 1


def test_the_tests_of_the_example_pass(files: Path) -> None:
    tests = vars(importlib.import_module("test_export_workarounds"))
    found = [test for name, test in tests.items() if name.startswith("test_")]
    assert len(found) == 2
    for test in found:
        test()


class Hypotenuse(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"y": torch.hypot(x.detach(), x + 1)}


class Packed(nn.Module):
    """Sums over packed sequences. x: (length, width)."""

    fast_path = True

    def forward(self, x: torch.Tensor, packed_lengths: torch.Tensor, cu_seqlens: torch.Tensor) -> dict[str, Any]:
        if self.fast_path and bool((packed_lengths == 1).all()):
            return {"y": x}
        sums = nn.functional.pad(x.cumsum(0), (0, 0, 1, 0))
        return {"y": sums[cu_seqlens[1:]] - sums[cu_seqlens[:-1]]}


class Asserting(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "no")
        return x + 1


def test_the_other_kinds_are_registered_and_do_what_they_say(files: Path) -> None:
    before = set(workarounds())
    script = ModuleType("script")
    exec(compile(SCRIPTS[0], str(PAGE), "exec"), vars(script))
    kinds = sorted(each.kind for each in workarounds() if each not in before)
    assert kinds == sorted({*get_args(Kind)} - {"patch"})
    assert "executorch/source/gate_static" in EXPORT_SKIPS
    assert "onnx/optimize/gate" in ONNX_DISABLE_OPTIMIZE

    x = torch.rand(2, 3)
    artifact = OnnxExporter().export_artifact(Hypotenuse().eval(), {"x": x})
    assert set(artifact.workarounds) == {
        "onnx/translate/aten_hypot",
        "onnx/node_fixes/fix_detach",
        "onnx/ir_fixes/fix_stack_traces",
    }
    torch.testing.assert_close(artifact(x=x)["y"], torch.hypot(x, x + 1))

    lengths, others = torch.tensor([2, 4]), torch.tensor([3, 1, 5])
    packed = DynamoExporter().export_artifact(Packed().eval(), {"x": torch.rand(6, 4), "packed_lengths": lengths})
    assert packed.workarounds == {"dynamo/signature/prepare_cu_seqlens": 1, "dynamo/model_patches/patch_fast_path": 1}
    x = torch.rand(9, 4)
    expected = torch.stack([part.sum(0) for part in x.split([3, 1, 5])])
    torch.testing.assert_close(packed(x=x, packed_lengths=others)["y"], expected)

    hits = Hits()
    program = torch.export.export(Asserting(), (x,))
    apply_fx_program_fixes("executorch", program, hits)
    assert hits.counts == {"executorch/program_fixes/fix_assertions": 1}
    assert torch.equal(program.module()(-x), 1 - x)
