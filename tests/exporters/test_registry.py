from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import exporters.executorch.node_fixes
import exporters.onnx.ir_fixes  # noqa: F401  registers what the last tests look at
from exporters import registry
from exporters.registry import (
    Hits,
    apply_patches,
    register_fx_program_fix,
    register_patch,
    register_translation,
    resolve,
    workarounds,
)


class Victim:
    def method(self) -> str:
        return "original"

    @staticmethod
    def static() -> str:
        return "original"

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    @property
    def size(self) -> str:
        return "original"

    called = functools.partial(str, "original")


class Heir(Victim):
    pass


HERE = __name__


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


def test_classmethods_staticmethods_properties_and_callables_stay_what_they_are() -> None:
    names = ("static", "named", "size", "called")
    _patch(*(f"{HERE}.{owner}.{name}" for name in names for owner in ("Victim", "Heir")))
    before, hits = (dict(vars(Victim)), dict(vars(Heir))), Hits()
    with _apply(hits):
        for owner in (Victim, Heir):
            one = owner()
            # The heir's original is what it inherits, which is patched by then.
            expected = "patched original" if owner is Victim else "patched patched original"
            assert (one.static(), owner.static(), one.size, one.called()) == (expected,) * 4
            assert one.named() == owner.named() == expected.replace("original", owner.__name__)
    assert (dict(vars(Victim)), dict(vars(Heir))) == before
    assert hits.counts.total() == 6 + 2 * 6


def test_one_factory_serves_several_paths() -> None:
    given = []

    @register_patch("dynamo", f"{HERE}.Victim.method", "torch.where", model_change="test")
    def wrap(original: Any) -> Any:
        """Test."""
        given.append(original)
        return functools.partial(original)

    originals, hits = [Victim.method, torch.where], Hits()
    with _apply(hits):
        assert Victim().method() == "original"
        torch.where(torch.tensor([True]))
    assert given == originals
    assert hits.counts == {"dynamo/model_patches/wrap": 2}


@pytest.mark.parametrize(
    ("path", "call", "original"),
    [
        ("torch.where", lambda x: torch.where(x > 0, x, x), torch.where),
        ("torch.Tensor.view", lambda x: x.view(3, 1), torch.Tensor.view),
        ("torch.nn.functional.gelu", torch.nn.GELU(), torch.nn.functional.gelu),
        ("torch.ops.aten.gelu", lambda x: torch.ops.aten.gelu(x, approximate="none"), torch.ops.aten.gelu),
    ],
)
def test_torch_ops_are_patched_and_the_factory_gets_the_real_one(
    path: str, call: Callable[[torch.Tensor], torch.Tensor], original: Any
) -> None:
    given = []

    @register_patch("onnx", path, model_change="test")
    def negate(real: Any) -> Any:
        """Test."""
        given.append(real)
        return lambda *args, **kwargs: -real(*args, **kwargs)

    x, hits = torch.randn(3), Hits()
    plain = call(x)
    with apply_patches("onnx", "torch_patches", hits):
        assert torch.equal(call(x), -plain)
        assert torch.ops.aten.gelu.default.overloadpacket.default  # what an op offers besides the call stays there
    assert torch.equal(call(x), plain)
    assert given == [original]
    assert hits.counts == {"onnx/torch_patches/negate": 1}


def test_an_overload_is_the_dispatchers_and_cannot_be_patched() -> None:
    _patch("torch.ops.aten.gelu.default")
    with (
        pytest.raises(
            RuntimeError, match=r"dispatcher needs the overload itself; name .* such as torch\.ops\.aten\.gelu"
        ),
        apply_patches("dynamo", "model_patches", Hits()),
    ):
        pass


@pytest.mark.parametrize("wrong", [(), (torch.where,)])
def test_a_patch_is_for_paths(wrong: Any) -> None:
    with pytest.raises(ValueError, match="at least one dotted path, such as"):
        register_patch("dynamo", *wrong, model_change="test")


@pytest.mark.parametrize("wrong", [(), ("aten.gelu",)])
def test_a_translation_is_for_operators(wrong: Any) -> None:
    with pytest.raises(ValueError, match="at least one operator, such as"):
        register_translation(*wrong, model_change="test")


def test_a_fix_that_counts_nothing_is_named() -> None:
    @register_fx_program_fix("executorch", model_change="test")
    def forgetful(program: Any) -> Any:
        """Test."""

    with pytest.raises(TypeError, match="executorch/program_fixes/forgetful returned None; a fix returns how many"):
        registry.apply_fx_program_fixes("executorch", None, Hits(), [w.id for w in workarounds()][:-1])


def test_what_c_classes_compute_is_patched_as_a_property() -> None:
    @register_patch("onnx", "torch.Tensor.shape", model_change="test")
    def first_axis(shape: Any) -> Any:
        """Test."""
        return lambda tensor: shape(tensor)[:1]

    with apply_patches("onnx", "torch_patches", Hits()):
        assert torch.ones(2, 3).shape == (2,)
    assert torch.ones(2, 3).shape == (2, 3)
    assert "shape" not in vars(torch.Tensor)


def test_a_factory_that_raises_is_named_and_leaves_nothing_patched() -> None:
    _patch(f"{HERE}.Victim.method")

    @register_patch("dynamo", f"{HERE}.Victim.size", f"{HERE}.Victim.static", model_change="test")
    def breaks(original: Any) -> Any:
        """Test."""
        if isinstance(original, type(Victim.static)) and original.__name__ == "static":
            raise KeyError("gone")
        return original

    before = dict(vars(Victim))
    message = rf"patch dynamo/model_patches/breaks cannot be made for {HERE}.Victim.static: KeyError: 'gone'"
    with pytest.raises(RuntimeError, match=message), _apply():
        pytest.fail("the export began")
    assert dict(vars(Victim)) == before
    with _apply(disabled=("dynamo/model_patches/breaks",)):
        assert Victim().method() == "patched original"


@pytest.mark.parametrize(
    ("path", "made", "message"),
    [
        (f"{HERE}.Heir", len, "something that is called and is no class"),
        (f"{HERE}.HERE", len, "something that is called and is no class"),
        ("torch.Tensor.__getitem__", len, "a type written in C stays a sequence once its __getitem__ was replaced"),
        (f"{HERE}.Victim.method", None, "the factory returned None, not a function"),
        (f"{HERE}.Victim.method", Victim, "the factory returned <class .*Victim'>, not a function"),
    ],
)
def test_what_is_no_function_is_refused(path: str, made: Any, message: str) -> None:
    @register_patch("dynamo", path, model_change="test")
    def odd(original: Any) -> Any:
        """Test."""
        return made

    with pytest.raises(RuntimeError, match=message), _apply():
        pytest.fail("the export began")


def test_patches_nest() -> None:
    """An export within an export, and two workarounds for one path."""
    _patch(f"{HERE}.Victim.method")

    @register_patch("dynamo", f"{HERE}.Victim.method", model_change="test")
    def again(original: Any) -> Any:
        """Test."""
        return lambda self: original(self).upper()

    before, outer, inner = dict(vars(Victim)), Hits(), Hits()
    with _apply(outer):
        assert Victim().method() == "PATCHED ORIGINAL"
        with pytest.raises(ZeroDivisionError), _apply(inner):
            Victim().method()
            raise ZeroDivisionError
        assert Victim().method() == "PATCHED ORIGINAL"
    assert dict(vars(Victim)) == before
    assert set(inner.counts.values()) == {1}
    assert set(outer.counts.values()) == {3}


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
        (lambda: register_translation(model_change="x"), "at least one operator"),
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
