"""What ExecuTorch has no kernels for, in the form that has some."""

from __future__ import annotations

import pytest
import torch

from exporters.executorch.torch_patches import _patch_argsort, _patch_bucketize


@pytest.mark.parametrize("right", [False, True])
def test_a_bucket_is_how_many_boundaries_lie_below(right: bool) -> None:
    values = torch.tensor([[-1.0, 0.0, 0.24], [0.25, 0.5, 2.0]])
    boundaries = torch.tensor([0.0, 0.25, 0.5])
    expected = [[0, 1, 1], [2, 3, 3]] if right else [[0, 0, 1], [1, 2, 3]]
    assert _patch_bucketize(torch.bucketize)(values, boundaries, right=right).tolist() == expected


def test_integers_are_ranked_by_comparing_all_with_all() -> None:
    permutation = torch.tensor([2, 0, 3, 1])
    assert _patch_argsort(torch.argsort)(permutation).tolist() == [1, 3, 0, 2]
    assert _patch_argsort(torch.argsort)(torch.tensor([5, 5, 1, 5])).tolist() == [2, 0, 1, 3]


def test_other_sorting_is_left_to_torch() -> None:
    values = torch.tensor([0.5, -0.5])
    assert _patch_argsort(torch.argsort)(values, descending=True).tolist() == [0, 1]
