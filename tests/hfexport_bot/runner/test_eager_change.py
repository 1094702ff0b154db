"""Head's eager outputs against base's on base's weights and inputs: what moved, and what cannot be compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.eager_change import compare_eager, write_eager
from hfexport_bot.runner.probed import Probed
from hfexport_bot.runner.sources import ModelCase
from hfexport_bot.schema import EagerChange, Task

pytestmark = pytest.mark.export


class Model(torch.nn.Module):
    def __init__(
        self, head: Callable[..., Any], seed: int, names: tuple[str, ...] = ("first",), width: int = 4
    ) -> None:
        super().__init__()
        torch.manual_seed(seed)
        for name in names:
            self.add_module(name, torch.nn.Linear(4, width))
        self.tied = self.get_submodule(names[0])
        self.head = head

    def forward(self, x: torch.Tensor, **others: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.head(self.tied(x), **others)
        return found


def case(head: Callable[..., Any], seed: int = 0, **model: Any) -> ModelCase:
    torch.manual_seed(seed)
    return ModelCase(Model(head, seed, **model).eval(), {"x": torch.rand(2, 4)})


def change(base: ModelCase, head: ModelCase, path: Path) -> EagerChange:
    write_eager(path, base, run_eager(base.model, base.inputs, 0))
    return compare_eager(path, head, Task.FORWARD, 0)


def probed(each: ModelCase) -> Probed:
    return Probed(each.model, each.inputs, each.probes, 0)


def told(found: EagerChange) -> dict[str, str]:
    return {output.name: output.note for output in found.moved}


def plain(y: torch.Tensor, **_: Any) -> dict[str, Any]:
    return {"y": y, "best": y.argmax(-1)}


def test_other_weights_and_inputs_of_heads_own_do_not_matter(tmp_path: Path) -> None:
    found = change(case(plain, seed=0), case(plain, seed=1), tmp_path / "f")
    assert found == EagerChange(max_abs=0.0)


def test_what_moved_is_told_by_how_much(tmp_path: Path) -> None:
    def moved(y: torch.Tensor) -> dict[str, Any]:
        return {"y": torch.cat([y[:1], y[1:] + 0.5]), "best": y.argmax(-1)}

    found = change(case(plain), case(moved, seed=1), tmp_path / "f")
    assert [(output.name, output.note, output.share) for output in found.moved] == [("y", "moved", 0.5)]
    assert found.moved[0].max_abs == pytest.approx(0.5)
    assert found.max_abs == pytest.approx(0.5)


def test_rounding_is_no_move_but_is_measured(tmp_path: Path) -> None:
    found = change(case(plain), case(lambda y: {"y": y + 1e-6, "best": y.argmax(-1)}), tmp_path / "f")
    assert found.moved == ()
    assert found.max_abs == pytest.approx(1e-6, rel=0.2)


def test_outputs_that_come_go_or_change_their_form_are_told(tmp_path: Path) -> None:
    def other(y: torch.Tensor) -> dict[str, Any]:
        return {"y": y.double(), "more": y}

    def shaped(y: torch.Tensor) -> dict[str, Any]:
        return {"y": y.T, "best": y.argmax(-1) / torch.zeros(())}

    base = case(plain)
    assert told(change(base, case(other), tmp_path / "f")) == {
        "y": "float32 → float64",
        "best": "gone",
        "more": "new",
    }
    assert told(change(base, case(shaped), tmp_path / "f")) == {
        "y": "shape [2, 4] → [4, 2]",
        "best": "int64 → float32",
    }
    assert told(change(base, case(lambda y: {"y": y / 0, "best": y.argmax(-1)}), tmp_path / "f")) == {
        "y": "no longer finite"
    }


def test_ties_of_integers_are_no_move(tmp_path: Path) -> None:
    def first(y: torch.Tensor) -> dict[str, Any]:
        return {"best": y[:, :2].argmax(-1)}

    def last(y: torch.Tensor) -> dict[str, Any]:
        return {"best": 1 - y[:, :2].flip(-1).argmax(-1)}

    assert told(change(case(first), case(last), tmp_path / "f")) == {}
    assert told(change(case(first), case(lambda y: {"best": 1 - first(y)["best"]}), tmp_path / "f")) == {
        "best": "moved"
    }
    even = case(first)
    for parameter in even.model.parameters():
        parameter.data[1] = parameter.data[0]
    assert told(change(even, case(last), tmp_path / "f")) == {}


def test_weights_that_do_not_fit_are_told(tmp_path: Path) -> None:
    base = case(plain, names=("first", "old"))
    found = change(base, case(plain, names=("first", "new", "newer")), tmp_path / "f")
    assert found.moved == ()
    assert found.weights == "4 new (new.weight, new.bias, newer.weight and 1 more); 2 gone (old.bias, old.weight)"
    wider = change(case(plain), case(plain, width=5), tmp_path / "f")
    assert wider.weights == "4 of another shape (first.weight, first.bias, tied.weight and 1 more)"
    assert told(wider)["y"] == "shape [2, 4] → [2, 5]"


def test_inputs_are_bases_in_the_structure_that_head_has(tmp_path: Path) -> None:
    def using(y: torch.Tensor, extra: Any = None, more: Any = None, flag: int = 1) -> dict[str, Any]:
        return {"y": y + extra[0]["a"] * flag + (0 if more is None else more)}

    base, head = case(using), case(using, seed=1)
    base.inputs |= {"extra": [{"a": torch.ones(4), "b": None}], "flag": 2}
    head.inputs |= {"extra": [{"a": torch.zeros(4), "b": None}], "flag": 2, "more": torch.ones(4)}
    assert change(base, head, tmp_path / "f") == EagerChange(max_abs=0.0)
    head.inputs["extra"] = [{"b": torch.zeros(4)}]
    with pytest.raises(ValueError, match="the input extra has another structure than on base"):
        compare_eager(tmp_path / "f", head, Task.FORWARD, 0)


def test_what_moves_on_a_probe_alone_is_told_with_it(tmp_path: Path) -> None:
    def masked(y: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        return {"y": (y * mask[..., None]).sum(0, keepdim=True) + 0 * y}

    def fixed(y: torch.Tensor, mask: torch.Tensor) -> dict[str, Any]:
        return {"y": masked(y.view(2, 4), torch.ones(2))["y"]}

    base, head = case(masked), case(fixed, seed=1)
    for each in (base, head):
        each.inputs["mask"] = torch.ones(2)
        each.probes["longer"] = {"x": torch.rand(3, 4), "mask": torch.ones(3)}
        each.probes["hidden"] = {"x": each.inputs["x"], "mask": torch.tensor([1.0, 0.0])}
    write_eager(tmp_path / "f", base, run_eager(base.model, base.inputs, 0), probed(base))
    found = compare_eager(tmp_path / "f", head, Task.FORWARD, 0)
    first, second = found.moved
    assert first.name == "probe longer"
    assert first.note.startswith("no longer taken, RuntimeError: shape '[2, 4]' is invalid")
    assert (second.name, second.probe, second.note, second.share) == ("y", "hidden", "moved", 1.0)
    assert found.max_abs == second.max_abs


def test_a_probe_that_base_refuses_is_not_compared(tmp_path: Path) -> None:
    def fixed(y: torch.Tensor) -> dict[str, Any]:
        return {"y": y.view(2, 4)}

    base, head = case(fixed), case(plain)
    base.probes["longer"] = head.probes["longer"] = {"x": torch.rand(3, 4)}
    write_eager(tmp_path / "f", base, run_eager(base.model, base.inputs, 0), probed(base))
    assert told(compare_eager(tmp_path / "f", head, Task.FORWARD, 0)) == {"best": "new"}


def test_what_is_too_big_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hfexport_bot.runner.eager_change.MAX_BYTES", 10)
    base = case(plain)
    write_eager(tmp_path / "f", base, run_eager(base.model, base.inputs, 0))
    assert list(tmp_path.iterdir()) == []


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("fifo", "link"):
        with pytest.raises((OSError, ValueError)):
            compare_eager(tmp_path / name, case(plain), Task.FORWARD, 0)


class Configured:
    """A configuration whose defaults a change may move."""

    slope = 1.0

    def __init__(self, scale: float = 1.0, **given: Any) -> None:
        self.scale, self.slope, self.inner = scale, given.get("slope", self.slope), {"shift": given.get("shift", 0.0)}

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


class ConfiguredModel(torch.nn.Module):
    factor = 1.0

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        config = self.config
        return {"y": self.factor * config.slope * config.scale * self.linear(x) + config.inner["shift"]}


def configured(config: Any, model_class: Any = ConfiguredModel) -> ModelCase:
    torch.manual_seed(0)
    return ModelCase(model_class(config).eval(), {"x": torch.rand(2, 4)})


def test_another_configuration_of_the_test_is_not_the_models_doing(tmp_path: Path) -> None:
    class Doubling(ConfiguredModel):
        factor = 2.0

    base, other = Configured(), Configured(scale=3.0, shift=0.5)
    assert change(configured(base), configured(other), tmp_path / "f") == EagerChange(
        max_abs=0.0, configuration="scale 1.0 → 3.0, inner.shift 0.0 → 0.5"
    )
    both = change(configured(base), configured(other, Doubling), tmp_path / "f")
    assert told(both) == {"y": "moved"}
    assert both.configuration


def test_a_changed_default_is_the_models_doing(tmp_path: Path) -> None:
    class Steeper(Configured):
        slope = 2.0

    found = change(configured(Configured()), configured(Steeper()), tmp_path / "f")
    assert told(found) == {"y": "moved"}
    assert not found.configuration


def test_a_configuration_that_head_makes_no_model_of_is_said(tmp_path: Path) -> None:
    class Strict(ConfiguredModel):
        def __init__(self, config: Any) -> None:
            if config.scale == 1.0:
                raise TypeError("scale is to be given")
            super().__init__(config)

    with pytest.raises(ValueError, match=r"another configuration than on base \(scale 1.0 → 3.0\), and head makes no"):
        change(configured(Configured()), configured(Configured(scale=3.0), Strict), tmp_path / "f")
