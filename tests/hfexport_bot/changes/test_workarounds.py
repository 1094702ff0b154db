"""Which workarounds a change is about."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.changes.workarounds import EditedWorkarounds, edited_workarounds
from hfexport_bot.schema import Backend, Layout
from tests.hfexport_bot.changes.test_exporters import FILES, FOLDER

OWN = """
from exporters.utils import register_patch

LIMIT = 3

@register_patch("dynamo", "modeling_a.AModel.limit", model_change="clamp always")
def _clamp(original):
    'Why.'
    return lambda self, x: x.clamp(max=LIMIT)

@register_patch("dynamo", "modeling_a.AModel.other", model_change="nothing")
def _other(original):
    'Why.'
    return original
"""


def find(
    base: Mapping[str, str], head: Mapping[str, str], layout: Layout = Layout.MODELING, own: str | None = None
) -> EditedWorkarounds:
    paths = [path for path in {**base, **head} if base.get(path) != head.get(path)]
    changes = [FileChange(path if path in base else None, path if path in head else None) for path in paths]
    return edited_workarounds(changes, MappingTree(base), MappingTree(head), layout, (own, own))


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("clamp(max=LIMIT)", "clamp(max=LIMIT + 1)", {"clamp"}),
        ("LIMIT = 3", "LIMIT = 4", {"clamp"}),
        ("'Why.'", "'Why indeed.'", set()),
        ("return original\n", "return original\n# said\n", set()),
        ("import register_patch", "import register_patch, Hits", set()),
    ],
)
def test_the_repositorys_own_file(old: str, new: str, names: set[str]) -> None:
    found = find({"w.py": OWN}, {"w.py": OWN.replace(old, new)}, own="w.py")
    assert found.own == names
    assert found.calls_for_audit == (("clamp changed in w.py",) if names else ())
    assert found.concerns("dynamo/model_patches/clamp", {Backend.ONNX}) == bool(names)
    assert not found.concerns("dynamo/model_patches/other", {Backend.ONNX})
    assert not found.concerns("repo:exporter_dynamo.clamp", {Backend.ONNX})


def test_a_new_file_a_file_that_goes_and_one_that_python_cannot_read() -> None:
    assert find({}, {"w.py": OWN}, own="w.py").own == {"clamp", "other"}
    removed = frozenset(f"dynamo/model_patches/{name}" for name in ("clamp", "other"))
    assert find({"w.py": OWN}, {}, own="w.py") == EditedWorkarounds(removed=removed)
    assert find({"w.py": OWN}, {"w.py": "def"}, own="w.py") == EditedWorkarounds()
    assert find({"w.py": OWN}, {"w.py": OWN + "x = 1"}) == EditedWorkarounds(), "no settings name it"
    assert find({"w.py": OWN}, {"w.py": OWN.replace("_other", "_new")}, own="w.py").removed == {
        "dynamo/model_patches/other"
    }
    elsewhere = {"w.py": "from more import *", "more.py": OWN}
    assert not find({"w.py": OWN}, elsewhere, own="w.py").removed, "it may be registered there"


def test_patches_and_fixes_of_a_checkouts_exporters() -> None:
    base = {f"{FOLDER}/{name}.py": text for name, text in FILES.items()}
    head = {**base, f"{FOLDER}/utils.py": FILES["utils"].replace("x + 1", "x + 2")}
    found = find(base, head, Layout.TRANSFORMERS)
    assert found.theirs == {"repo:exporter_onnx._patch_where"}
    assert found.reasons == (f"patch_where changed in {FOLDER}",)
    assert find(base, head) == EditedWorkarounds(), "no checkout"
    without = {**base, f"{FOLDER}/exporter_onnx.py": "x = 1"}
    assert "repo:exporter_onnx._patch_where" in find(base, without, Layout.TRANSFORMERS).removed
    broken = {**base, f"{FOLDER}/exporter_onnx.py": "def f(:"}
    assert not find(base, broken, Layout.TRANSFORMERS).removed


def test_this_projects_own_exporters() -> None:
    base = {"exporters/registry.py": "def register_patch(): ...", "exporters/dynamo/patches.py": OWN}
    head = {**base, "exporters/dynamo/patches.py": OWN.replace("LIMIT = 3", "LIMIT = 4")}
    assert find(base, head).registered == {"clamp"}
    del base["exporters/registry.py"], head["exporters/registry.py"]
    assert find(base, head) == EditedWorkarounds(), "somebody else's folder of that name"


@pytest.mark.parametrize(
    ("package", "concerned"),
    [
        ("torch", {"dynamo/trace/x", "onnx/translate/x", "executorch/emit/x", "repo:exporter_onnx.x"}),
        ("onnxscript", {"onnx/translate/x", "repo:exporter_onnx.x"}),
        ("executorch", {"executorch/emit/x"}),
        ("requests", set()),
    ],
)
@pytest.mark.parametrize("file", ["requirements.txt", "requirements.lock"])
def test_pins(package: str, concerned: set[str], file: str) -> None:
    found = find({file: f"{package}==2.12.0\n"}, {file: f"{package}==2.13.0\n"})
    said = f"{package}==2.12.0 to {package}==2.13.0"
    assert found.calls_for_audit == ((said,) if concerned else ())
    acting = {
        "dynamo/trace/x": Backend.DYNAMO,
        "onnx/translate/x": Backend.ONNX,
        "executorch/emit/x": Backend.EXECUTORCH,
        "repo:exporter_onnx.x": Backend.ONNX,
    }
    assert {name for name, backend in acting.items() if found.concerns(name, {backend})} == concerned
    assert found.without({package}).calls_for_audit == ()
