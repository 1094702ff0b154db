"""When requests are repeated, how long they wait, and what their errors say."""

from __future__ import annotations

from typing import Any

import pytest

from hfexport_bot.github.answers import Comment, Pull, User
from hfexport_bot.github.client import Answer, Client, GitHubError, NotAllowed, NotFound, Refused, connect
from tests.hfexport_bot.github.conftest import Clock
from tests.hfexport_bot.github.server import BOT, REPOSITORY, GitHub

COMMENTS = f"/repos/{REPOSITORY}/issues/7/comments"
PULL = f"/repos/{REPOSITORY}/pulls/7"
SHA = "a" * 40


def waits(clock: Clock) -> list[float]:
    """Each wait, in seconds."""
    return [round(each, 3) for each in clock.slept]


@pytest.mark.parametrize("how", ["status", "after", "half", "no json"])
def test_a_get_is_repeated_until_it_is_answered(github: GitHub, client: Client, clock: Clock, how: str) -> None:
    github.pull(7, SHA)
    github.fail(how, "GET", "/pulls/7", times=2)
    assert client.get(PULL, Pull).head.sha == SHA
    assert waits(clock) == [1, 2]


def test_silence_is_repeated_too(github: GitHub, clock: Clock) -> None:
    github.pull(7, SHA)
    github.fail("silent", "GET", "/pulls/7", seconds=0.05)
    client = Client(connect(github.token, github.url, timeout=1), clock=clock, sleep=clock.sleep)
    assert client.get(PULL, Pull).number == 7


def test_an_answer_that_takes_too_long_is_given_up() -> None:
    with GitHub() as github:
        github.fail("silent", "GET", seconds=1.2, times=1)
        clock = Clock()
        client = Client(connect(github.token, github.url, timeout=1), 0.5, clock=clock, sleep=clock.sleep)
        with pytest.raises(GitHubError, match=r"GET /user: no answer from 127\.0\.0\.1:\d+ \(ReadTimeout\); run this"):
            client.get("/user", User)


def test_nobody_there(clock: Clock) -> None:
    with GitHub() as gone:
        url = gone.url
    client = Client(connect("x", url), clock=clock, sleep=clock.sleep)
    with pytest.raises(GitHubError, match=r"no answer from .*ConnectionError") as caught:
        client.get("/user", User)
    assert waits(clock) == [1, 2, 4, 8, 16, 32, 64, 128]  # with one more it would be past 300 s
    assert caught.value.status == 0


def test_a_patch_is_repeated(github: GitHub, client: Client) -> None:
    identity = github.comment(7, "old")
    github.fail("after", "PATCH", "/comments")
    github.fail("status", "PATCH", "/comments", status=503)
    assert client.patch(f"/repos/{REPOSITORY}/issues/comments/{identity}", {"body": "new"}, Comment).body == "new"
    assert github.bodies(7) == ["new"]


def create(client: Client, body: str) -> Comment:
    def find() -> Comment | None:
        return next((each for each in client.pages(COMMENTS, Comment) if each.body == body), None)

    return client.once("POST", COMMENTS, {"body": body}, Comment, find)


@pytest.mark.parametrize("how", ["after", "half", "no json"])
def test_a_create_that_did_happen_is_not_repeated(github: GitHub, client: Client, how: str) -> None:
    github.fail(how, "POST", "/comments")
    assert create(client, "hello").body == "hello"
    assert github.bodies(7) == ["hello"]
    assert github.writes() == [f"POST {COMMENTS}"]


def test_a_create_that_did_not_happen_is_repeated(github: GitHub, client: Client) -> None:
    github.fail("status", "POST", "/comments", status=500, times=2)
    assert create(client, "hello").author == BOT
    assert github.bodies(7) == ["hello"]
    assert len(github.writes()) == 3


def test_a_create_turned_away_by_a_rate_limit_needs_no_list(github: GitHub, client: Client) -> None:
    github.fail("status", "POST", "/comments", status=429, headers={"Retry-After": "5"})
    create(client, "hello")
    assert github.requests == [f"POST {COMMENTS}"] * 2


@pytest.mark.parametrize(
    ("status", "headers", "message", "waited"),
    [
        (429, {"Retry-After": "17"}, "", 17),
        (429, {"Retry-After": "Mon, 12 Jan 1970 13:47:10 GMT"}, "", 30),
        (429, {}, "", 60),
        (403, {"Retry-After": "17"}, "You have exceeded a secondary rate limit", 17),
        (403, {}, "You have exceeded a secondary rate limit. Please wait a few minutes", 60),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1000090"}, "API rate limit exceeded", 91),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "999000"}, "", 1),
        (429, {"Retry-After": "soon"}, "", 60),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "later"}, "", 1),  # PyGithub stumbles over it
        (503, {"Retry-After": "20"}, "", 20),
        (500, {"Retry-After": "-5"}, "", 1),
    ],
)
def test_waits_as_long_as_github_asks(
    github: GitHub, client: Client, clock: Clock, status: int, headers: dict[str, str], message: str, waited: float
) -> None:
    github.pull(7, SHA)
    github.fail("status", "GET", "/pulls/7", status=status, headers=headers, message=message)
    client.get(PULL, Pull)
    assert waits(clock) == [waited]


def test_does_not_wait_for_hours(github: GitHub, client: Client, clock: Clock) -> None:
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1003600"}
    github.fail("status", "GET", status=403, headers=headers, message="API rate limit exceeded for installation ID 1.")
    with pytest.raises(
        GitHubError, match=r"403 API rate limit exceeded .*would take 1h 00m more; run this again later"
    ):
        client.get(PULL, Pull)
    assert clock.slept == []


def test_all_waiting_together_has_an_end(github: GitHub, client: Client, clock: Clock) -> None:
    github.fail("status", "GET", status=429, headers={"Retry-After": "90"}, times=99)
    for _ in range(3):  # no fresh patience for another request
        with pytest.raises(GitHubError, match="would take 1m 30s more"):
            client.get(PULL, Pull)
    assert waits(clock) == [90, 90, 90]
    assert len(github.requests) == 6


@pytest.mark.parametrize(
    ("link", "asked"),
    [
        ("", None),
        ('<https://x/y?page=1>; rel="prev", <https://x/y?page=9>; rel="last"', None),
        ('<https://x/y?page=1>; rel="prev", <https://z/q?check_name=a,%20b&page=3>; rel="next"', "a, b"),
        ('<https://x/y?check_name=c,d&page=2>; rel="next", <https://x/y?page=9>; rel="last"', "c,d"),
    ],
)
def test_the_next_page_is_asked_for_by_its_own_parameters(link: str, asked: str | None) -> None:
    requests: list[tuple[str, Any]] = []

    def send(method: str, path: str, parameters: Any, body: Any) -> Answer:
        requests.append((path, parameters.get("check_name")))
        return Answer(200, {"link": link if len(requests) == 1 else ""}, "[]")

    list(Client(send).pages("/here", User))
    assert requests == [("/here", None), *([("/here", asked)] if asked else [])]


def test_a_clock_that_is_set_back_does_not_stop_writes(github: GitHub, client: Client, clock: Clock) -> None:
    create(client, "hello 1")
    clock.now -= 86_400
    create(client, "hello 2")
    assert waits(clock) == [1]


def test_writes_keep_a_pace(github: GitHub, client: Client, clock: Clock) -> None:
    for number in range(3):
        create(client, f"hello {number}")
    assert waits(clock) == [1, 1]


@pytest.mark.parametrize(
    ("status", "headers", "kind", "said"),
    [
        (401, {}, NotAllowed, "the token is missing, expired or wrong"),
        (403, {"X-Accepted-GitHub-Permissions": "checks=write"}, NotAllowed, "lacks the permission checks=write"),
        (403, {}, NotAllowed, "lacks the right to do this"),
        (404, {}, NotFound, "there is no such thing, or the token may not see it"),
        (410, {}, GitHubError, "410 Because"),
        (422, {}, Refused, "GitHub does not accept what was sent"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    github: GitHub, client: Client, clock: Clock, status: int, headers: dict[str, str], kind: type, said: str
) -> None:
    github.fail("status", "GET", status=status, headers=headers, message="Because\n::error::")
    with pytest.raises(kind, match=said) as caught:
        client.get(PULL, Pull)
    assert caught.value.status == status
    assert "\n" not in str(caught.value)
    assert len(github.requests) == 1
    assert clock.slept == []


def test_a_wrong_token(github: GitHub, clock: Clock) -> None:
    client = Client(connect("another", github.url), clock=clock, sleep=clock.sleep)
    with pytest.raises(NotAllowed, match="401 Bad credentials; the token is missing, expired or wrong"):
        client.get(PULL, Pull)


def test_a_body_that_is_too_long(github: GitHub, client: Client) -> None:
    with pytest.raises(Refused, match=r"422 Validation Failed: .*body is too long"):
        create(client, "x" * 65_537)


def test_all_pages_are_read(github: GitHub, client: Client, small_pages: None) -> None:
    for number in range(10):
        github.comment(7, str(number), "somebody")
    assert [each.body for each in client.pages(COMMENTS, Comment)] == [str(number) for number in range(10)]
    assert len(github.requests) == 4


def test_a_page_is_as_large_as_github_allows(github: GitHub, client: Client) -> None:
    for number in range(101):
        github.comment(7, str(number), "somebody")
    assert len(list(client.pages(COMMENTS, Comment))) == 101
    assert len(github.requests) == 2


def test_a_list_without_an_end() -> None:
    endless = Client(lambda *_: Answer(200, {"link": '<https://x/y?page=2>; rel="next"'}, '[{"login": "x"}]'))
    with pytest.raises(GitHubError, match="more than 300 pages"):
        list(endless.pages(COMMENTS, User))


def test_a_page_that_fails_is_read_again(github: GitHub, client: Client, small_pages: None) -> None:
    for number in range(5):
        github.comment(7, str(number), "somebody")
    pages = client.pages(COMMENTS, Comment)
    next(pages)
    github.fail("half", "GET", "/comments")
    assert len(list(pages)) == 4


def test_a_list_that_is_none(client: Client, github: GitHub) -> None:
    github.pull(7, SHA)
    with pytest.raises(GitHubError, match="no list"):
        list(client.pages(PULL, Pull))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"login": 1}', '"text"', "null", '{"login": {"login": "x"}}'])
def test_an_answer_of_another_shape_is_told(text: str) -> None:
    client = Client(lambda *_: Answer(200, {}, text), patience=0)
    with pytest.raises(GitHubError, match=r"GET /user: GitHub answered with something else than expected \("):
        client.get("/user", User)


def test_deleting_twice_is_no_error(github: GitHub, client: Client) -> None:
    identity = github.comment(7, "old")
    github.fail("after", "DELETE")
    client.delete(f"/repos/{REPOSITORY}/issues/comments/{identity}")
    assert github.bodies(7) == []


def test_an_enterprise_server_has_its_api_below_a_path(clock: Clock, small_pages: None) -> None:
    with GitHub(prefix="/api/v3") as github:
        for number in range(4):
            github.comment(7, str(number))
        client = Client(connect(github.token, f"{github.url}/"), clock=clock, sleep=clock.sleep)
        assert len(list(client.pages(COMMENTS, Comment))) == 4
        assert github.violations == []
