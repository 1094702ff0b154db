from __future__ import annotations

import inspect

import pytest
import torch
from torch.export import Dim

from exporters.artifacts import Artifact
from exporters.configs import DynamoConfig
from exporters.dynamo.shapes import AxisBound, axis_bounds, dynamic_shapes


def test_every_axis_is_left_to_torch() -> None:
    shapes = dynamic_shapes({"x": torch.ones(2, 3), "y": [torch.ones(4)], "z": {"a": torch.ones(5)}}, DynamoConfig())
    assert shapes == {"x": {0: Dim.AUTO, 1: Dim.AUTO}, "y": [{0: Dim.AUTO}], "z": {"a": {0: Dim.AUTO}}}


def test_static_shapes_need_no_specification() -> None:
    assert dynamic_shapes({"x": torch.ones(2)}, DynamoConfig(dynamic=False)) is None


def test_a_given_specification_is_taken() -> None:
    given = {"x": {0: Dim("batch", max=8)}}
    assert dynamic_shapes({"x": torch.ones(2)}, DynamoConfig(dynamic_shapes=given)) == given


def test_open_ends_of_a_given_specification_are_closed_where_the_config_bounds_axes() -> None:
    named = Dim("length", min=2)
    given = {"x": {0: Dim.AUTO, 1: named}, "y": [{0: Dim("batch", max=8)}, None], "z": {0: Dim.STATIC, 1: 2 * named}}
    inputs = {"x": torch.ones(3, 40), "y": [torch.ones(3), torch.ones(3)], "z": torch.ones(1, 80)}
    shapes = dynamic_shapes(inputs, DynamoConfig(dynamic_shapes=given, max_size=64))
    assert shapes is not None
    assert (shapes["x"][0], shapes["y"], shapes["z"][0]) == (Dim.AUTO(max=160), given["y"], Dim.STATIC)
    assert shapes["z"][1].root.max == 160
    assert (shapes["x"][1].__name__, shapes["x"][1].min, shapes["x"][1].max) == ("length", 2, 160)


def test_bounds_of_an_input_that_is_not_there_are_refused() -> None:
    with pytest.raises(ValueError, match="max_sizes names no input: nope; inputs are x"):
        dynamic_shapes({"x": torch.ones(2)}, DynamoConfig(max_sizes={"nope": {0: 4}}))


class Add(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], 3, 2).sum(-1) + y


def _bounds(config: DynamoConfig) -> dict[tuple[str, int], AxisBound]:
    inputs = {"x": torch.ones(40, 6), "y": torch.ones(40, 3)}
    program = torch.export.export(Add(), (), inputs, dynamic_shapes=dynamic_shapes(inputs, config))
    return {(bound.input, bound.axis): bound for bound in axis_bounds(program, ["x", "y"])}


def test_bounds_are_the_setting_or_twice_the_traced_size() -> None:
    assert _bounds(DynamoConfig(max_size=64))["x", 0].upper == 80
    assert _bounds(DynamoConfig(max_size=100))["x", 0].upper == 100
    assert _bounds(DynamoConfig())["x", 0].upper is None
    assert _bounds(DynamoConfig(max_sizes={"x": {0: 50}, "y": {0: 50}}))["x", 0].upper == 50


def test_axes_that_the_model_fixes_are_static_and_shared_ones_share_a_symbol() -> None:
    bounds = _bounds(DynamoConfig())
    assert bounds["x", 1] == AxisBound("x", 1, 6, 6)
    assert bounds["x", 0].dynamic
    assert bounds["x", 0].symbol == bounds["y", 0].symbol != ""


def test_the_line_that_made_an_axis_static_is_told() -> None:
    class Fixing(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: list[torch.Tensor]) -> torch.Tensor:
            return x + torch.zeros(int(x.shape[0]), 1) + y[0]

    inputs = {"x": torch.ones(4, 3), "y": [torch.ones(1, 3)]}
    program = torch.export.export(Fixing(), (), inputs, dynamic_shapes=dynamic_shapes(inputs, DynamoConfig()))
    bounds = axis_bounds(program, ["x", "y.0"])
    line = inspect.getsourcelines(Fixing)[1] + 2
    assert [bound.fixed_at for bound in bounds] == [f'File "{__file__}", line {line}, in forward', "", "", ""]
    artifact = Artifact("dynamo", program, ("x", "y.0"), ("output",), bounds, ("float32", "float32"))
    assert "fixed_at" not in artifact.metadata()["axes"][0], "a path of the machine that exported it"
    with pytest.raises(ValueError, match="axis 0 of x is 5 and was exported as 4, fixed") as caught:
        artifact(x=torch.ones(5, 3), y=[torch.ones(1, 3)])
    assert caught.value.__notes__ == [f"fixed by {bounds[0].fixed_at}"]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [({5: 9}, "bounds axis 5 of an input that has 2 axes"), ({1: 2}, "bounds axis 1 by 2; the sample has 3 there")],
)
def test_bounds_that_cannot_be_are_refused(sizes: dict[int, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dynamic_shapes({"x": torch.ones(2, 3)}, DynamoConfig(max_sizes={"x": sizes}))


def test_a_bounded_axis_may_be_counted_from_the_end() -> None:
    shapes = dynamic_shapes({"x": torch.ones(2, 3)}, DynamoConfig(max_sizes={"x": {-1: 9}}))
    assert shapes == {"x": {0: Dim.AUTO, 1: Dim.AUTO(max=9)}}
