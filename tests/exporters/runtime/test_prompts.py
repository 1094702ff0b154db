from __future__ import annotations

import pytest
import torch

from exporters.runtime.prompts import Medium, Positions, merge_features, positions_of, without_placeholders

IDS = torch.tensor([[1, 9, 9, 2], [9, 3, 4, 5]])


def test_features_take_the_placeholders_in_their_order() -> None:
    features = torch.tensor([[1.0], [2.0], [3.0]])
    found = merge_features(torch.zeros(2, 4, 1), IDS, 9, features)
    assert found[..., 0].tolist() == [[0, 1, 2, 0], [3, 0, 0, 0]]


def test_as_many_placeholders_as_features() -> None:
    with pytest.raises(ValueError, match=r"3 placeholders \(token 9\) for 2 features"):
        merge_features(torch.zeros(2, 4, 1), IDS, 9, torch.zeros(2, 1))


def test_placeholders_are_no_tokens_to_embed() -> None:
    assert without_placeholders(IDS, [Medium("vision_encoder", 9)]).tolist() == [[1, 0, 0, 2], [0, 3, 4, 5]]


def test_positions_in_planes_go_on_from_the_farthest() -> None:
    prompt = torch.tensor([[0, 1, 1, 1]])
    rope = torch.tensor([[[0, 0, 1, 4]], [[0, 0, 1, 2]], [[0, 0, 1, 3]]])
    positions = Positions(4, rope, prompt)
    whole = positions.of(prompt, 4)
    assert whole.tolist() == [[[0, 0, 1, 2]], *rope.tolist()]
    grown = torch.tensor([[0, 1, 1, 1, 1, 1]])
    assert positions.of(grown, 2).tolist() == [[[3, 4]], [[5, 6]], [[5, 6]], [[5, 6]]]
    assert Positions(3, rope, prompt).of(grown, 1).tolist() == [[[6]], [[6]], [[6]]]


def test_plain_positions_count_what_is_no_padding() -> None:
    mask = torch.tensor([[0, 1, 1]])
    assert Positions().of(mask, 3).tolist() == positions_of(mask, 3).tolist() == [[0, 0, 1]]
