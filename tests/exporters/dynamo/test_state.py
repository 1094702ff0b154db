from __future__ import annotations

import pytest
import torch

from exporters.dynamo.state import drop_unused_weights, preserved_state


class Memo(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cached_sequence_length = 7
        self.register_buffer("table", torch.ones(2), persistent=False)


def test_the_model_leaves_as_it_entered() -> None:
    model = torch.nn.Sequential(Memo())
    memo, table = model[0], model[0].table
    with pytest.raises(ZeroDivisionError), preserved_state(model):
        assert memo.cached_sequence_length is None
        memo.cached_sequence_length = 9
        memo.planted = torch.zeros(1)
        memo.table = torch.zeros(3)
        memo.register_buffer("other", torch.zeros(1))
        model.add_module("extra", Memo())
        raise ZeroDivisionError
    assert memo.cached_sequence_length == 7
    assert memo.table is table
    assert not hasattr(memo, "planted")
    assert list(memo._buffers) == ["table"]
    assert len(model) == 1


def test_weights_that_a_graph_does_not_use_are_not_saved_with_it() -> None:
    class Part(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    part = Part()
    program = torch.export.export(part, (torch.ones(3, 2),))
    assert drop_unused_weights(program) == 3
    assert set(program.state_dict) == {"used.weight", "used.bias"}
    assert torch.equal(program.module()(torch.ones(3, 2)), part(torch.ones(3, 2)))
    assert drop_unused_weights(program) == 0
