"""What a file of workarounds registers, read without running it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from hfexport_bot.changes.registrations import Registrations, installed_ids, read_registrations
from hfexport_bot.changes.tree import MappingTree

FILE = '''
import torch
from exporters import utils
from exporters.utils import register_export_skip, register_fx_node_fix as fix, register_patch

@register_patch("dynamo", "zoo.modeling_a.A.halve", model_change="x")
@register_patch("onnx", "torch.onnx.export", model_change="x")
@utils.register_patch(backend="executorch", model_change="x", *PATHS)
def _patch_halve(original):
    """Why."""

@utils.register_model_patch("executorch", model_change="x")
def calm(model):
    """Why."""

@fix("onnx", model_change="x")
def fix_gelu(graph_module, node):
    """Why."""

@utils.register_translation(torch.ops.aten.gelu.default, model_change="x")
def gelu(x):
    """Why."""

register_export_skip("hangs", "AModel", backend="onnx", reason="It hangs.", shapes="static", model_change="x")
'''


def read(source: str, others: Mapping[str, str] | None = None) -> Registrations:
    return read_registrations(MappingTree({"tools/own.py": source, **(others or {})}), "tools/own.py")


def test_ids_and_targets_are_those_of_the_registry() -> None:
    found = {each.id: each for each in read(FILE).found}
    assert sorted(found) == [
        "dynamo/model_patches/patch_halve",
        "executorch/model_patches/calm",
        "onnx/node_fixes/fix_gelu",
        "onnx/onnx_patches/patch_halve",
        "onnx/source/hangs",
        "onnx/translate/gelu",
    ]
    assert found["dynamo/model_patches/patch_halve"].targets == ("zoo.modeling_a.A.halve",)
    skip = found["onnx/source/hangs"]
    assert (skip.kind, skip.targets, skip.reason) == ("skip", ("AModel", "static"), "It hangs.")


def test_what_cannot_be_read_or_lies_in_another_file_is_told_apart() -> None:
    assert not read(FILE).whole, "the paths of one patch are not written out, so its stage is unknown"
    plain = 'from exporters import utils\n@utils.register_patch("dynamo", "a.b", model_change="x")\ndef f(o): 1\n'
    assert read(plain).whole
    assert not read(f"from more import *\n{plain}", {"more.py": ""}).whole
    assert not read(f"import zoo.more\n{plain}", {"zoo/more.py": ""}).whole
    assert not read(f"from .more import x\n{plain}").whole
    assert not read(plain.replace('"dynamo"', "BACKEND")).whole


def test_there_may_be_none() -> None:
    assert read("") == Registrations()
    assert read("def broken(:") == Registrations(whole=False)
    assert read_registrations(MappingTree({}), None) == Registrations()


@pytest.mark.export
def test_this_projects_own_files_read_as_they_register() -> None:
    import exporters.dynamo.exporter
    import exporters.executorch.exporter
    import exporters.onnx.exporter  # noqa: F401  all three register their workarounds
    from exporters.registry import workarounds

    read = installed_ids()
    registered = {each.id for each in workarounds() if each.function.__module__.startswith("exporters.")}
    assert len(read) > 70
    assert read == registered
