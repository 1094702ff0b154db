from __future__ import annotations

import pytest
import torch

from exporters.dynamo.state import preserved_state


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
