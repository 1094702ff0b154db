"""Requests to GitHub's API that are repeated when that is safe, wait as long as GitHub asks, and say what is wrong.

PyGithub authenticates and sends; when to try again is decided here, since its own retries leave PATCH out and may send
a POST twice. Clock and sleep are handed in.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ValidationError

from hfexport_bot.errors import RunError
from hfexport_bot.reporting.summary import duration
from hfexport_bot.reporting.text import plain

#: What a list request asks for a page: the most that GitHub gives.
PER_PAGE = 100
#: More pages than any list of ours can have.
MAX_PAGES = 300
#: Seconds before a second try, when GitHub does not say; doubled for each further one.
FIRST_WAIT = 1.0
#: Seconds that GitHub wants at least after a secondary rate limit that names no time.
SECONDARY_WAIT = 60.0
#: Seconds from one write to the next, as GitHub wishes.
PACE = 1.0
#: Statuses of a rate limit (403 also has other meanings): nothing was done.
_TURNED_AWAY = (403, 429)
#: One address of a ``Link`` header, and what it is for.
_LINK = re.compile(r"<([^>]*)>([^<]*)")

Parameters = Mapping[str, str | int]

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class Answer:
    """One response: header names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str


class NoAnswer(Exception):
    """A request that got no response, or half of one: nobody knows whether it was carried out."""


class Send(Protocol):
    """Sends one request to GitHub and returns its response, whatever its status. Raises `NoAnswer`."""

    def __call__(self, method: str, path: str, parameters: Parameters, body: Any) -> Answer: ...


class GitHubError(RunError):
    """GitHub refused a request, or could not be had. ``status`` is 0 without a response."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class NotAllowed(GitHubError):
    """The token is missing, invalid or without the right (401, 403)."""


class Locked(GitHubError):
    """Nobody may write to this conversation (403)."""


class NotFound(GitHubError):
    """There is no such thing, or the token may not see it (404)."""


class Refused(GitHubError):
    """GitHub understood the request and does not accept its content (422)."""


@dataclass
class Client:
    """GitHub's API. ``patience`` is how many seconds all requests together may lose by waiting and by tries that
    failed; when it is used up, the next failure is final.

    Every method raises `GitHubError` or one of its kinds.
    """

    send: Send
    patience: float = 300.0
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    _lost: float = field(default=0.0, init=False)
    _next_write: float = field(default=0.0, init=False)

    def get(self, path: str, kind: type[T], parameters: Parameters | None = None) -> T:
        """Read one thing."""
        return _read(kind, f"GET {path}", _content(self._repeat("GET", path, parameters or {})))

    def pages(self, path: str, kind: type[T], parameters: Parameters | None = None, key: str = "") -> Iterator[T]:
        """Read a list to its end; ``key`` names it where a page is an object that holds it."""
        asked: Parameters = {**(parameters or {}), "per_page": PER_PAGE}
        for _ in range(MAX_PAGES):
            answer = self._repeat("GET", path, asked)
            page = _content(answer)
            page = page.get(key) if key and isinstance(page, dict) else page
            if not isinstance(page, list):
                raise GitHubError(f"GET {path}: GitHub answered with something that is no list")
            yield from (_read(kind, f"GET {path}", each) for each in page)
            following = _next_page(answer.headers.get("link", "") if answer else "")
            if following is None:
                return
            asked = following
        raise GitHubError(f"GET {path}: more than {MAX_PAGES} pages; something is wrong with this list")

    def patch(self, path: str, body: Any, kind: type[T]) -> T:
        """Change a thing to what ``body`` says; doing so twice changes nothing."""
        return _read(kind, f"PATCH {path}", _content(self._repeat("PATCH", path, {}, body)))

    def delete(self, path: str) -> None:
        """Remove a thing; one that is already gone is no error."""
        try:
            self._repeat("DELETE", path, {})
        except NotFound:
            return

    def once(self, method: str, path: str, body: Any, kind: type[T], find: Callable[[], T | None]) -> T:
        """Do what must not be done twice, such as a create. After a try that may or may not have been carried out,
        ``find`` is asked for its result (None: it was not), and only then is it tried again."""
        found: list[T] = []

        def carried_out() -> bool:
            result = find()
            found.extend([] if result is None else [result])
            return bool(found)

        answer = self._repeat(method, path, {}, body, carried_out)
        return found[0] if found else _read(kind, f"{method} {path}", _content(answer))

    def _repeat(
        self,
        method: str,
        path: str,
        parameters: Parameters,
        body: Any = None,
        carried_out: Callable[[], bool] | None = None,
    ) -> Answer | None:
        """Send until there is an answer that another try would not change, or patience ends. None: an answer was lost,
        but ``carried_out``, asked before another try, says that none is needed."""
        backoff = FIRST_WAIT
        while True:
            if method != "GET":
                self._keep_pace()
            began = self.clock()
            try:
                answer: Answer | None = self.send(method, path, parameters, body)
                problem = ""
            except NoAnswer as error:
                answer, problem = None, str(error)
            asked = 0.0
            if answer is not None:
                pause = self._pause(answer)
                if pause is None and answer.status >= 300:
                    raise _error(method, path, answer)
                if pause is None and _readable(answer):
                    return answer
                asked = pause or 0.0
                problem = f"{answer.status} {_message(answer)}".strip() if pause is not None else "half an answer"
            self._lost += self.clock() - began
            self._wait(f"{method} {path}: {plain(problem, 400)}", max(asked, backoff), answer)
            backoff *= 2
            lost = answer is None or answer.status not in _TURNED_AWAY
            if lost and carried_out is not None and carried_out():
                return None

    def _keep_pace(self) -> None:
        early = min(self._next_write - self.clock(), PACE)  # a clock may be set back
        if early > 0:
            self.sleep(early)
        self._next_write = self.clock() + PACE

    def _wait(self, what: str, seconds: float, answer: Answer | None) -> None:
        if self._lost + seconds > self.patience:
            status = answer.status if answer else 0
            asks = f"; it would take {duration(seconds)} more" if status in _TURNED_AWAY else ""
            raise GitHubError(f"{what}{asks}; run this again later", status)
        self.sleep(seconds)
        self._lost += seconds

    def _pause(self, answer: Answer) -> float | None:
        """Seconds that an answer asks to wait before the next try, or None where another try would change nothing."""
        if answer.status >= 500:
            return self._retry_after(answer) or 0.0
        if answer.status not in _TURNED_AWAY:
            return None
        asked = self._retry_after(answer)
        if asked is not None:
            return asked
        if answer.headers.get("x-ratelimit-remaining", "").strip() == "0":
            reset = _number(answer.headers.get("x-ratelimit-reset", ""))
            if reset is not None:
                return max(reset - self.clock(), 0.0) + 1.0
        if answer.status == 429 or "rate limit" in _message(answer).lower():
            return SECONDARY_WAIT
        return None

    def _retry_after(self, answer: Answer) -> float | None:
        """Seconds from now of ``Retry-After``, which is a number of them or a date."""
        said = answer.headers.get("retry-after", "").strip()
        seconds = _number(said)
        if seconds is not None:
            return max(seconds, 0.0)
        try:
            return max(parsedate_to_datetime(said).timestamp() - self.clock(), 0.0) if said else None
        except ValueError:
            return None


def connect(token: str, api_url: str = "https://api.github.com", timeout: int = 20) -> Send:
    """Send requests to a GitHub, by PyGithub. ``api_url`` is ``GITHUB_API_URL``, also an Enterprise server's;
    ``timeout`` are the seconds that it may be silent."""
    from github import Auth, Github

    github = Github(
        auth=Auth.Token(token) if token else None,
        base_url=api_url.rstrip("/"),
        user_agent="hfexport-bot",
        timeout=timeout,
        retry=None,
        seconds_between_requests=None,
        seconds_between_writes=None,
    )

    def send(method: str, path: str, parameters: Parameters, body: Any) -> Answer:
        try:
            status, headers, text = github.requester.requestJson(method, path, dict(parameters), {}, body)
        except (OSError, ValueError) as error:
            raise NoAnswer(f"no answer from {urlsplit(api_url).netloc} ({type(error).__name__})") from error
        except RuntimeError as error:  # redirected to another host
            raise GitHubError(f"{method} {path}: {plain(str(error), 300)}") from error
        return Answer(status, {name.lower(): str(value) for name, value in headers.items()}, str(text or ""))

    return send


def _error(method: str, path: str, answer: Answer) -> GitHubError:
    said = plain(_message(answer), 400).rstrip(". ")
    what = f"{method} {path}: {answer.status}{f' {said}' if said else ''}"
    if answer.status == 401:
        return NotAllowed(f"{what}; the token is missing, expired or wrong: give one as GITHUB_TOKEN", 401)
    if answer.status == 403 and "locked" in said.lower():
        return Locked(f"{what}; unlock the conversation to have it there", 403)
    if answer.status == 403:
        needed = plain(answer.headers.get("x-accepted-github-permissions", ""), 100)
        right = f"the permission {needed}" if needed else "the right to do this"
        return NotAllowed(f"{what}; the token lacks {right}: add it to the workflow's `permissions`", 403)
    if answer.status == 404:
        return NotFound(f"{what}; there is no such thing, or the token may not see it", 404)
    if answer.status == 422:
        return Refused(f"{what}; GitHub does not accept what was sent", 422)
    return GitHubError(what, answer.status)


def _message(answer: Answer) -> str:
    """What GitHub says of an error, with its details; empty for an answer that is none of its own."""
    try:
        content = json.loads(answer.text)
    except ValueError:
        return ""
    if not isinstance(content, dict):
        return ""
    parts = [str(content.get("message", ""))]
    details = content.get("errors")
    for each in details if isinstance(details, list) else ():
        parts.append(" ".join(map(str, each.values())) if isinstance(each, dict) else str(each))
    return ": ".join(part for part in parts if part)


def _readable(answer: Answer) -> bool:
    try:
        _content(answer)
    except ValueError:
        return False
    return True


def _content(answer: Answer | None) -> Any:
    return json.loads(answer.text) if answer and answer.text else None


def _read(kind: type[T], what: str, content: Any) -> T:
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "at all"
        raise GitHubError(
            f"{what}: GitHub answered with something else than expected ({where}: {first['msg']})"
        ) from None


def _next_page(link: str) -> Parameters | None:
    """The parameters of the next page that a ``Link`` header names; the path is ours, whatever host it names."""
    for target, attributes in _LINK.findall(link):
        if 'rel="next"' in attributes:
            return dict(parse_qsl(urlsplit(target).query))
    return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e12 else None
