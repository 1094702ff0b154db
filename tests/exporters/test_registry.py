from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import exporters.executorch.node_fixes
import exporters.onnx.ir_fixes  # noqa: F401  registers what the last tests look at
from exporters import registry
from exporters.registry import Hits, apply_patches, register_patch, resolve, workarounds


class Victim:
    def method(self) -> str:
        return "original"

    @staticmethod
    def static() -> str:
        return "original"


class Heir(Victim):
    pass


HERE = __name__


@pytest.fixture(autouse=True)
def _clean_registry() -> Iterator[None]:
    before = dict(registry._WORKAROUNDS)
    yield
    registry._WORKAROUNDS.clear()
    registry._WORKAROUNDS.update(before)


def _patch(*paths: str) -> None:
    @register_patch("dynamo", *paths, model_change="none, this is a test")
    def replace(original: Callable[..., str]) -> Callable[..., str]:
        """Replaced in a test."""
        return lambda *args: f"patched {original(*args)}"


def _apply(hits: Hits | None = None, disabled: tuple[str, ...] = ()) -> Any:
    return apply_patches("dynamo", "model_patches", hits or Hits(), disabled)


def test_a_patch_is_installed_counted_and_taken_back() -> None:
    _patch(f"{HERE}.Victim.method")
    before, hits = vars(Victim)["method"], Hits()
    with _apply(hits):
        assert Victim().method() == "patched original"
        assert Victim().method() == "patched original"
    assert vars(Victim)["method"] is before
    assert hits.counts == {"dynamo/model_patches/replace": 2}


def test_originals_come_back_when_the_export_raises() -> None:
    _patch(f"{HERE}.Victim.method", f"{HERE}.Victim.static")
    before = dict(vars(Victim))
    with pytest.raises(ZeroDivisionError), _apply():
        assert Victim.static() == "patched original"
        raise ZeroDivisionError
    assert dict(vars(Victim)) == before


def test_an_inherited_method_is_patched_on_the_heir_only() -> None:
    _patch(f"{HERE}.Heir.method")
    with _apply():
        assert (Heir().method(), Victim().method()) == ("patched original", "original")
    assert "method" not in vars(Heir)


def test_a_patch_that_is_not_hit_leaves_no_trace() -> None:
    _patch(f"{HERE}.Victim.method")
    hits = Hits()
    with _apply(hits):
        pass
    assert not hits.counts


def test_a_disabled_patch_is_left_out() -> None:
    _patch(f"{HERE}.Victim.method")
    with _apply(disabled=("dynamo/model_patches/replace",)):
        assert Victim().method() == "original"


def test_a_path_that_leads_nowhere_is_passed_over_and_listed() -> None:
    _patch("torch.gone.away", "no_such_package.thing", f"{HERE}.Victim.method")
    with _apply():
        assert Victim().method() == "patched original"
    assert [path for _, path in registry.unresolved("dynamo") if "nllb" not in path] == [
        "torch.gone.away",
        "no_such_package.thing",
    ]


def test_patches_of_a_backends_own_packages_have_a_stage_of_their_own() -> None:
    @register_patch("onnx", "torch.onnx.export", model_change="test")
    def own(original: Any) -> Any:
        """Test."""

    @register_patch("onnx", "torch.where", model_change="test")
    def torchs(original: Any) -> Any:
        """Test."""

    stages = {w.id for w in workarounds("onnx") if w.kind == "patch"}
    assert {"onnx/onnx_patches/own", "onnx/torch_patches/torchs"} <= stages


@pytest.mark.parametrize(
    ("register", "message"),
    [
        (lambda: register_patch("dynamo", "torch.where"), "needs upstream= "),
        (lambda: register_patch("dynamo", model_change="x"), "at least one dotted path"),
        (lambda: register_patch("tflite", "torch.where", model_change="x"), "has no stage"),
        (lambda: register_patch("dynamo", "torch.where", model_change="x")(lambda original: None), "docstring"),
    ],
)
def test_a_workaround_without_its_reasons_is_refused(register: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register()


def test_an_id_is_taken_once() -> None:
    _patch(f"{HERE}.Victim.method")
    with pytest.raises(ValueError, match="registered already"):
        _patch(f"{HERE}.Victim.static")


def test_every_registered_workaround_says_why_and_until_when() -> None:
    registered = workarounds()
    assert registered
    for workaround in registered:
        assert workaround.reason.endswith(".")
        assert workaround.model_change or (workaround.upstream or "").startswith("https://github.com/")


def test_resolving_a_model_patch_does_not_import_the_model() -> None:
    code = (
        "import sys; from exporters.registry import resolve;"
        "path = 'transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeTop2Router._cast_classifier';"
        "assert resolve(path, import_models=False) is None;"
        "assert 'transformers' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_resolving_reaches_into_classes() -> None:
    assert resolve("torch.nn.Linear.forward") == (torch.nn.Linear, "forward")
    assert resolve("torch.nn.Linear.backwards") is None
