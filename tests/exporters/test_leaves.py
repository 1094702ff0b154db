from __future__ import annotations

import torch
from torch.utils import _pytree as pytree
from transformers.modeling_outputs import BaseModelOutput

from exporters.leaves import named_leaves, spec_names


def test_tensors_are_named_by_their_path() -> None:
    tree = {"a": torch.ones(1), "b": [torch.zeros(1), (torch.ones(2), 3)], "c": None}
    assert list(named_leaves(tree)) == ["a", "b.0", "b.1.0"]


def test_paths_that_would_be_spelled_alike_stay_apart() -> None:
    tree = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    assert list(named_leaves(tree)) == spec_names(pytree.tree_structure(tree)) == ["a.b", "a.b_"]


def test_model_outputs_are_named_by_field_and_index() -> None:
    output = BaseModelOutput(last_hidden_state=torch.ones(1), hidden_states=(torch.ones(1), torch.ones(1)))
    assert list(named_leaves(output)) == ["last_hidden_state", "hidden_states.0", "hidden_states.1"]


def test_a_bare_tensor_has_a_name_too() -> None:
    assert list(named_leaves(torch.ones(1))) == ["output"]


def test_a_specification_gives_the_names_of_what_it_describes() -> None:
    tree = {"a": torch.ones(1), "b": (torch.zeros(1), torch.ones(2))}
    assert spec_names(pytree.tree_structure(tree)) == list(named_leaves(tree))
