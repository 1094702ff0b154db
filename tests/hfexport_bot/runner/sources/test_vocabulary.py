"""How many ids a model takes, where its configuration does not say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from hfexport_bot.runner.case import examine, surveyed
from hfexport_bot.runner.progress import Progress
from hfexport_bot.runner.sources import find_model_case
from hfexport_bot.runner.sources.kinds import VOCABULARY, kind_value
from hfexport_bot.runner.sources.vocabulary import ordinary_tokens, refused_values, vocabulary_size
from hfexport_bot.schema import CaseId, Layout, OutcomeKind, RunnerSetup, UnavailableCause


class WordsConfig(PretrainedConfig):
    """Counts its ids in a field of a name of its own."""

    model_type = "words"

    def __init__(self, words: int = 99, width: int = 32, **others: Any) -> None:
        self.words, self.width = words, width
        super().__init__(**others)


class Words(PreTrainedModel):
    """Looks its ids up in a table that nothing tells of."""

    config_class = WordsConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.table = nn.Embedding(config.words, config.width)
        self.head = nn.Linear(config.width, 4)
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.head(self.table(input_ids))


class ToldWords(Words):
    """Tells its table."""

    def get_input_embeddings(self) -> nn.Module:
        return self.table


class ShiftedWords(Words):
    """Looks up what it computes: whatever is wrong with that is its own fault."""

    def forward(self, input_ids: torch.Tensor) -> Any:
        return self.head(self.table(input_ids % 90 + 50))


def survey(model_class: type) -> Any:
    case_id = CaseId.parse(f"words/{model_class.__name__}/dynamo/dynamic/forward")
    setup = RunnerSetup(layout=Layout.INSTALLED)
    progress = Progress(lambda stage, component: None)
    return examine(case_id, lambda: find_model_case(model_class), setup, progress, surveyed)


def test_ids_stay_within_the_models_own_embedding() -> None:
    case = find_model_case(ToldWords)
    assert vocabulary_size(case.model) == 99
    assert int(ordinary_tokens(case.model).max()) == 98
    assert all(int(inputs["input_ids"].max()) < 99 for inputs in (case.inputs, *case.probes.values()))
    assert survey(ToldWords).kind is OutcomeKind.PASS


def test_a_configuration_that_says_less_goes_before_the_embedding() -> None:
    case = find_model_case(ToldWords)
    case.model.config.vocab_size = 40
    assert vocabulary_size(case.model) == 40
    case.model.config.vocab_size = 400
    assert vocabulary_size(case.model) == 99


@pytest.mark.parametrize(
    "field", ["vocab", "n_vocab", "vocabulary", "vocabulary_size", "vocab_size", "text_vocab_size"]
)
def test_usual_names_of_the_field_are_known(field: str) -> None:
    assert kind_value(field, {}, 99) == VOCABULARY


def test_ids_beyond_a_table_that_nothing_tells_of_are_the_inputs_fault() -> None:
    outcome = survey(Words)
    assert (outcome.kind, outcome.cause) == (OutcomeKind.UNAVAILABLE, UnavailableCause.UNKNOWN_INPUTS)
    assert "'input_ids' that were made go up to" in outcome.message
    assert "past the 99 rows of their table" in outcome.message
    assert [(each.source, each.cause) for each in outcome.tried] == [("synthesised", UnavailableCause.UNKNOWN_INPUTS)]


def test_what_a_model_looks_up_of_its_own_is_its_own_fault() -> None:
    outcome = survey(ShiftedWords)
    assert (outcome.kind, outcome.stage) == (OutcomeKind.ERROR, "eager")
    assert "out of range" in outcome.message


def test_a_forward_that_takes_its_values_refuses_none() -> None:
    model = Words(WordsConfig())
    assert refused_values(model, {"input_ids": torch.tensor([[98]])}) == ""
    assert "'input_ids'" in refused_values(model, {"input_ids": torch.tensor([[99]])})
