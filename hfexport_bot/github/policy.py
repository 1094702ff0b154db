"""What decides verdicts where they are published: the base's settings, read through GitHub's API and from nowhere that
a change could write to."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from urllib.parse import quote

from hfexport_bot.errors import UsageError
from hfexport_bot.github.answers import File
from hfexport_bot.github.client import Client, GitHubError, NotFound, Parameters
from hfexport_bot.github.event import SHA, Event
from hfexport_bot.github.pulls import NoPullRequest, find_pull_request
from hfexport_bot.settings import SettingsFile, read_settings


@dataclass(frozen=True)
class Policy:
    """The settings to judge by, and why they are only the defaults (empty: they are what the base says)."""

    settings: SettingsFile = field(default_factory=SettingsFile)
    problem: str = ""


def read_policy(client: Client | None, event: Event, path: str) -> Policy:
    """The settings of the base of what an event is about; the defaults, which excuse nothing, where there is no file
    and where it cannot be read."""
    if client is None:
        return Policy(problem="there is no GITHUB_TOKEN")
    try:
        content = _read(client, event, path)
        return Policy(read_settings(lambda name: content if name == path else b"", "the base", path))
    except NotFound:
        return Policy()
    except (GitHubError, UsageError) as error:
        return Policy(problem=str(error))


def _read(client: Client, event: Event, path: str) -> bytes:
    ref = _base(client, event)
    parameters: Parameters = {"ref": ref} if ref else {}
    file = client.get(f"/repos/{event.repository}/contents/{quote(path, safe='')}", File, parameters)
    if file.encoding != "base64":
        raise UsageError(f"{path}: GitHub gives it as {file.encoding!r}; it may be too long")
    try:
        return base64.b64decode(file.content)
    except binascii.Error as error:
        raise UsageError(f"{path}: GitHub's answer cannot be read: {error}") from None


def _base(client: Client, event: Event) -> str:
    """A commit that only who may write to the repository could choose; empty for the default branch's last one."""
    if event.change is not None:
        try:
            return find_pull_request(client, event.repository, event.change).base
        except NoPullRequest:
            return ""
    return event.base if SHA.fullmatch(event.base) else ""
