"""A GitHub of each test's own, and a client whose waiting takes no time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hfexport_bot.github import client as client_module
from hfexport_bot.github.client import Client, connect
from tests.hfexport_bot.github.server import GitHub


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def github() -> Iterator[GitHub]:
    """GitHub; what breaks its published description fails the test."""
    with GitHub() as server:
        yield server
    assert server.violations == []


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(github: GitHub, clock: Clock) -> Client:
    return Client(connect(github.token, github.url), clock=clock, sleep=clock.sleep)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three, so that a short list has several."""
    monkeypatch.setattr(client_module, "PER_PAGE", 3)
