"""The order in which sources are asked, and what is told of those that had nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hfexport_bot.runner import sources
from hfexport_bot.runner.sources import Inapplicable, ModelCase, Unavailable, Wanted, find_model_case
from hfexport_bot.schema import Source, SourceTry, UnavailableCause, Variant


class Toy(torch.nn.Module):
    """Anything."""


def gives(name: Source, origin: str = "") -> Any:
    return lambda wanted: ModelCase(torch.nn.Linear(1, 1), {}, source=name.value, origin=origin)


def refuses(cause: UnavailableCause, message: str) -> Any:
    def ask(wanted: Wanted) -> ModelCase:
        raise Unavailable(cause, message)

    return ask


def nothing(wanted: Wanted) -> None:
    """Has nothing to do with the class."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_sources(*answers: Any, **wanted: Any) -> ModelCase:
        monkeypatch.setattr(sources, "SOURCES", dict(zip(Source, answers, strict=False)))
        return find_model_case(Toy, **wanted)

    return with_sources


def test_the_first_that_has_a_case_gives_it_and_those_before_are_told(ask: Any) -> None:
    case = ask(nothing, refuses(UnavailableCause.MISSING_LIBRARY, "no timm"), gives(Source.SYNTHESISED, "tiny"))
    assert case.source == "synthesised"
    assert case.tried == (
        SourceTry(source="model tests", cause=UnavailableCause.MISSING_LIBRARY, message="no timm"),
        SourceTry(source="synthesised", name="tiny"),
    )


def test_only_the_sources_named_are_asked(ask: Any) -> None:
    case = ask(gives(Source.REPOSITORY), gives(Source.MODEL_TESTS), sources=(Source.MODEL_TESTS,))
    assert case.source == "model tests"


def test_where_none_has_a_case_the_cause_is_one_that_can_be_cured(ask: Any) -> None:
    with pytest.raises(Unavailable) as caught:
        ask(
            nothing,
            refuses(UnavailableCause.MISSING_LIBRARY, "no timm"),
            refuses(UnavailableCause.UNKNOWN_INPUTS, "no inputs"),
        )
    assert caught.value.cause is UnavailableCause.MISSING_LIBRARY
    assert caught.value.message == "no timm; no inputs"
    assert [each.source for each in caught.value.tried] == ["model tests", "synthesised"]


def test_otherwise_it_is_the_last_ones(ask: Any) -> None:
    with pytest.raises(Unavailable) as caught:
        ask(
            refuses(UnavailableCause.INVALID_CONFIG, "bad config"),
            refuses(UnavailableCause.UNKNOWN_INPUTS, "no inputs"),
        )
    assert (caught.value.cause, caught.value.message) == (UnavailableCause.UNKNOWN_INPUTS, "no inputs; bad config")


@pytest.mark.parametrize(
    ("source", "wanted", "missing"),
    [
        (Source.REPOSITORY, {}, "repository: the settings name no case function"),
        (Source.REPOSITORY, {"hook": lambda name, seed: None}, "repository: its case function returns None"),
        (Source.MODEL_TESTS, {}, "model tests: only a transformers checkout has them"),
        (Source.MODEL_TESTS, {"tests": Path()}, "model tests: no test class of the checkout tests it"),
        (Source.MODEL_TESTS, {"tests": Path(), "variant": Variant.CACHE}, "model tests: turns no switches"),
        (
            Source.CHECKPOINT,
            {},
            r"hub checkpoint: the settings name none for it \(`checkpoints:`, with `allow-hub: true`",
        ),
    ],
)
def test_a_source_that_has_nothing_to_do_with_a_class_says_what_is_missing(
    source: Source, wanted: dict[str, Any], missing: str
) -> None:
    with pytest.raises(Unavailable, match=f"no source that was asked has to do with Toy: {missing}"):
        find_model_case(Toy, sources=(source,), **wanted)


def test_each_source_that_was_asked_says_what_is_missing() -> None:
    with pytest.raises(Unavailable) as caught:
        find_model_case(Toy, sources=(Source.REPOSITORY, Source.CHECKPOINT))
    assert [part.partition(":")[0] for part in caught.value.message.split("; ")] == [
        "no source that was asked has to do with Toy",
        "hub checkpoint",
    ]


def test_a_variant_that_is_not_to_be_had_ends_the_search(ask: Any) -> None:
    def inapplicable(wanted: Wanted) -> ModelCase:
        raise Inapplicable(f"Toy has no {wanted.variant}")

    with pytest.raises(Inapplicable, match="Toy has no cache"):
        ask(inapplicable, gives(Source.MODEL_TESTS), variant=Variant("cache"))
