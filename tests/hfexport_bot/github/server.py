"""A small GitHub on this machine: it remembers what is written to it, and holds both sides to GitHub's own description.

Every request and every response is checked against the published API description. What breaks it is kept in
``violations``, which must be empty at the end of a test. Faults are ordered beforehand with `GitHub.fail`.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from openapi_core import Config, OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.templating.responses.exceptions import ResponseNotFound
from openapi_core.testing import MockRequest, MockResponse

from tests.hfexport_bot.github.history import History
from tests.hfexport_bot.github.payloads import component, description
from tests.hfexport_bot.github.trim_openapi import ERROR

REPOSITORY = "octo/zoo"
#: GitHub's limits that its description does not have.
MAX_COMMENT_CHARS = 65_536
BOT = "github-actions[bot]"

Reply = tuple[int, Any]
Headers = dict[str, str]


@cache
def _api() -> OpenAPI:
    return OpenAPI.from_dict(description(), config=Config(spec_validator_cls=None))


@dataclass
class Fault:
    """What goes wrong with the next ``times`` requests of a method whose path has ``where`` in it.

    ``how``: ``status`` answers so and does nothing; ``after`` does it and then answers 502; ``half`` does it and sends
    half of the answer; ``no json`` does it and answers with a page; ``silent`` says nothing for ``seconds``.
    """

    how: str
    method: str
    where: str = ""
    times: int = 1
    status: int = 502
    message: str = ""
    headers: Headers = field(default_factory=dict)
    seconds: float = 0.0


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that gave up is what some tests are about."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class GitHub:
    """The server and what it knows. Used as a context manager; ``url`` is what GITHUB_API_URL would be.

    The token's owner is an app's bot; with ``login`` set, a user. ``rights`` are what the token may write, ``refused``
    what it may not even read.
    """

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix
        self.app = "github-actions"
        self.login = ""
        self.token = "a-token"
        self.rights = {"checks", "pull-requests"}
        self.refused: set[str] = set()
        self.pulls: list[dict[str, Any]] = []
        self.comments: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.history = History()
        self.permissions: dict[str, str] = {}
        self.files: dict[tuple[str, str], bytes] = {}  # by commit (empty: the default branch's) and path
        self.activity: dict[str, list[dict[str, Any]]] = {}
        #: Runs of workflows, by the workflow's file, the newest first.
        self.runs: dict[str, list[dict[str, Any]]] = {}
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.violations: list[str] = []
        self.before: Callable[[str, str], None] = lambda method, path: None
        self._server = _QuietServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.prefix}"

    def __enter__(self) -> GitHub:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    # What tests put there

    def fail(self, how: str, method: str, where: str = "", **more: Any) -> None:
        """Order a fault."""
        self.faults.append(Fault(how, method, where, **more))

    def pull(self, number: int, sha: str, repository: str = REPOSITORY, branch: str = "topic", **more: Any) -> None:
        """Open a pull request."""
        owner = repository.partition("/")[0]
        head = {
            "sha": sha,
            "ref": branch,
            "repo": {"full_name": repository, "pushed_at": "2026-11-30T10:00:00Z"},
            "user": {"login": owner},
        }
        base = more.setdefault("base", {"ref": "main", "sha": "c" * 40})
        self.history.add(sha, base["sha"])
        self.history.branches.setdefault(base["ref"], base["sha"])
        self.pulls.append({"number": number, "state": "open", "head": head, **more})

    def comment(self, number: int, body: str, login: str = BOT) -> int:
        """Write a comment as somebody; returns its id."""
        identity = 1 + max((each["id"] for each in self.comments), default=100)
        address = f"https://github.example/{REPOSITORY}/pull/{number}#issuecomment-{identity}"
        self.comments.append(
            {"id": identity, "number": number, "body": body, "user": {"login": login}, "html_url": address}
        )
        return identity

    def bodies(self, number: int) -> list[str]:
        """The comments of a pull request."""
        return [each["body"] for each in self.comments if each["number"] == number]

    def writes(self) -> list[str]:
        """The requests that were not GET."""
        return [each for each in self.requests if not each.startswith("GET")]

    # Answering

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Any, token: str) -> Reply:
        if token.partition(" ")[2] != self.token:
            return _error(401, "Bad credentials")
        for pattern, handle in self._routes(method).items():
            found = re.fullmatch(pattern, path)
            if found:
                return handle(found.groupdict(), query, body)
        return _error(404, "Not Found")

    def _routes(self, method: str) -> dict[str, Callable[[dict[str, str], Mapping[str, str], Any], Reply]]:
        home = f"/repos/{REPOSITORY}"
        return {
            "GET": {
                "/user": self._user,
                f"{home}/pulls": self._list_pulls,
                rf"{home}/pulls/(?P<number>\d+)": self._get_pull,
                rf"{home}/issues/(?P<number>\d+)/comments": self._list_comments,
                rf"{home}/contents/(?P<path>[^/]+)": self._get_file,
                rf"{home}/commits/(?P<sha>\w+)": self._get_commit,
                rf"{home}/compare/(?P<base>.+)\.\.\.(?P<head>.+)": self._compare,
                rf"{home}/commits/(?P<sha>\w+)/check-runs": self._list_checks,
                rf"{home}/check-runs/(?P<id>\d+)": self._get_check,
                rf"{home}/collaborators/(?P<login>[^/]+)/permission": self._permission,
                r"/repos/(?P<repository>[^/]+/[^/]+)/activity": self._activity,
                rf"{home}/actions/workflows/(?P<workflow>[^/]+)/runs": self._list_runs,
            },
            "POST": {
                rf"{home}/issues/(?P<number>\d+)/comments": self._create_comment,
                f"{home}/check-runs": self._create_check,
            },
            "PATCH": {
                rf"{home}/issues/comments/(?P<id>\d+)": self._edit_comment,
                rf"{home}/check-runs/(?P<id>\d+)": self._edit_check,
            },
            "DELETE": {rf"{home}/issues/comments/(?P<id>\d+)": self._delete_comment},
        }.get(method, {})

    def _user(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if not self.login:
            return _error(403, "Resource not accessible by integration")
        return 200, component("public-user", {"login": self.login, "user_view_type": "public"})

    def _list_pulls(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        owner, _, branch = query.get("head", "").partition(":")
        found = [
            each
            for each in self.pulls
            if each["state"] == query.get("state", "open")
            and (not branch or (each["head"]["ref"] == branch and each["head"]["user"]["login"] == owner))
        ]
        return 200, [component("pull-request-simple", each) for each in found]

    def _get_pull(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        found = [each for each in self.pulls if each["number"] == int(path["number"])]
        return (200, component("pull-request", found[0])) if found else _error(404, "Not Found")

    def _list_comments(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        number = int(path["number"])
        return 200, [_comment(each) for each in self.comments if each["number"] == number]

    def _create_comment(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if "pull-requests" not in self.rights:
            return _error(403, "Resource not accessible by integration")
        if len(body["body"]) > MAX_COMMENT_CHARS:
            return _too_long()
        self.comment(int(path["number"]), body["body"], self.login or f"{self.app}[bot]")
        return 201, _comment(self.comments[-1])

    def _edit_comment(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        found = self._own_comment(path)
        if found is None:
            return _error(404, "Not Found")
        if "pull-requests" not in self.rights:
            return _error(403, "Resource not accessible by integration")
        if len(body["body"]) > MAX_COMMENT_CHARS:
            return _too_long()
        found["body"] = body["body"]
        return 200, _comment(found)

    def _delete_comment(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        found = self._own_comment(path)
        if found is None:
            return _error(404, "Not Found")
        if "pull-requests" not in self.rights:
            return _error(403, "Resource not accessible by integration")
        self.comments.remove(found)
        return 204, None

    def _own_comment(self, path: dict[str, str]) -> dict[str, Any] | None:
        return next((each for each in self.comments if each["id"] == int(path["id"])), None)

    def _get_commit(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if path["sha"] not in self.history.commits:
            return _error(422, f"No commit found for SHA: {path['sha']}")
        return 200, self.history.commit(path["sha"])

    def _compare(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if "contents" in self.refused:
            return _error(403, "Resource not accessible by integration")
        found = self.history.compare(unquote(path["base"]), unquote(path["head"]))
        return (200, found) if found else _error(404, "Not Found")

    def _get_file(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if "contents" in self.refused:
            return _error(403, "Resource not accessible by integration")
        name = unquote(path["path"])
        content = self.files.get((query.get("ref", ""), name))
        if content is None:
            return _error(404, "Not Found")
        text = base64.encodebytes(content).decode()
        values = {"type": "file", "encoding": "base64", "content": text, "size": len(content), "path": name}
        return 200, component("content-file", values)

    def _list_checks(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        found = [
            each
            for each in self.checks
            if each["head_sha"] == path["sha"] and query.get("check_name", each["name"]) == each["name"]
        ]
        return 200, {"total_count": len(found), "check_runs": [self._check(each) for each in found]}

    def _get_check(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        found = [each for each in self.checks if each["id"] == int(path["id"])]
        return (200, self._check(found[0])) if found else _error(404, "Not Found")

    def _create_check(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if "checks" not in self.rights or self.login:
            return _error(403, "Resource not accessible by integration")
        self.checks.append({"id": 1 + len(self.checks), "annotations": [], **body})
        return self._edit_check({"id": str(len(self.checks))}, query, body, 201)

    def _edit_check(self, path: dict[str, str], query: Mapping[str, str], body: Any, status: int = 200) -> Reply:
        if "checks" not in self.rights or self.login:
            return _error(403, "Resource not accessible by integration")
        check = self.checks[int(path["id"]) - 1]
        check.update({key: value for key, value in body.items() if key != "output"})
        output = body.get("output", {})
        check["annotations"] = check["annotations"] + output.get("annotations", [])
        check["output"] = {key: output[key] for key in ("title", "summary") if key in output}
        return status, self._check(check)

    def _check(self, check: dict[str, Any]) -> Any:
        shown = {key: value for key, value in check.items() if key not in ("annotations", "output")}
        output = {**check["output"], "annotations_count": len(check["annotations"])}
        address = f"https://github.example/{REPOSITORY}/runs/{check['id']}"
        return component("check-run", {**shown, "output": output, "html_url": address, "app": {"slug": self.app}})

    def _permission(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if path["login"] not in self.permissions:
            return _error(404, f"{path['login']} is not a user")
        permission = self.permissions[path["login"]]
        return 200, component("repository-collaborator-permission", {"permission": permission})

    def _activity(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        if path["repository"] not in self.activity:
            return _error(404, "Not Found")
        every = [each for each in self.activity[path["repository"]] if each["ref"] == query.get("ref", each["ref"])]
        every.sort(key=lambda each: each["timestamp"], reverse=query.get("direction", "desc") == "desc")
        return 200, [component("activity", each) for each in every]

    def _list_runs(self, path: dict[str, str], query: Mapping[str, str], body: Any) -> Reply:
        asked = {"head_sha": query.get("head_sha"), "head_branch": query.get("branch")}
        status = query.get("status")
        found = [
            each
            for each in self.runs.get(path["workflow"], ())
            if all(value in (None, each[key]) for key, value in asked.items())
            and status in (None, each["status"], each["conclusion"])
        ]
        return 200, {"total_count": len(found), "workflow_runs": [component("workflow-run", each) for each in found]}

    # Wires

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        github = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # one packet for an answer, not one for each header

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

            def handle_request(self) -> None:
                with github._lock:
                    github._serve(self)

        for method in ("GET", "POST", "PATCH", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.handle_request)
        return Handler

    def _serve(self, wire: BaseHTTPRequestHandler) -> None:
        method, url = wire.command, urlsplit(wire.path)
        path, query = url.path, dict(parse_qsl(url.query))
        content = wire.rfile.read(int(wire.headers.get("Content-Length") or 0))
        self.requests.append(f"{method} {path.removeprefix(self.prefix)}")
        path = path.removeprefix(self.prefix)
        self.before(method, path)
        fault = self._fault(method, path)
        if fault and fault.how == "silent":
            time.sleep(fault.seconds)
            wire.close_connection = True
            return
        request = MockRequest("https://api.github.com", method.lower(), path, args=query, data=content or None)
        self._hold(f"{method} {path}", lambda: _api().validate_request(request))
        if fault and fault.how == "status":
            headers, (status, answer) = fault.headers, _error(fault.status, fault.message)
        else:
            body = json.loads(content) if content else None
            status, answer = self.answer(method, path, query, body, wire.headers.get("Authorization", ""))
            headers = {}
        if status < 300 and isinstance(_list_of(answer), list):
            headers, answer = self._page(path, query, answer)
        text = b"" if answer is None else json.dumps(answer).encode()
        self._hold_response(f"{status} of {method} {path}", request, status, text)
        if fault and fault.how == "after":
            status, text = 502, b"<html>Bad gateway</html>"
        if fault and fault.how == "no json":
            text = b'{"id": 1, "body": "'
        self._send(wire, status, headers, text, half=bool(fault and fault.how == "half"))

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.times and fault.method == method and fault.where in path:
                fault.times -= 1
                return fault
        return None

    def _page(self, path: str, query: Mapping[str, str], answer: Any) -> tuple[Headers, Any]:
        """One page of a list, with the header that leads to the next."""
        every = _list_of(answer)
        size, page = int(query.get("per_page", 30)), int(query.get("page", 1))
        part = every[(page - 1) * size : page * size]
        headers = {}
        if page * size < len(every):
            following = urlencode({**query, "page": page + 1})
            headers["Link"] = f'<{self.url}{path}?{following}>; rel="next", <{self.url}{path}?page=9>; rel="last"'
        return headers, {**answer, _list_key(answer): part} if isinstance(answer, dict) else part

    def _hold(self, what: str, validate: Callable[[], None]) -> None:
        try:
            validate()
        except OpenAPIError as error:
            details = [str(each.message)[-200:] for each in getattr(error.__cause__, "schema_errors", ())]
            self.violations.append(f"{what}: {type(error).__name__} {details or str(error)[:200]}")

    def _hold_response(self, what: str, request: MockRequest, status: int, text: bytes) -> None:
        def validate() -> None:
            try:
                _api().validate_response(request, MockResponse(text, status_code=status))
            except ResponseNotFound:  # an error that the description leaves out for this path
                if status < 400 or not set(json.loads(text)) <= set(component(ERROR.rpartition("/")[2], {}) | _ERROR):
                    raise

        self._hold(what, validate)

    @staticmethod
    def _send(wire: BaseHTTPRequestHandler, status: int, headers: Headers, text: bytes, half: bool) -> None:
        wire.send_response(status)
        wire.send_header("Content-Type", "application/json; charset=utf-8")
        wire.send_header("Content-Length", str(len(text)))
        for name, value in headers.items():
            wire.send_header(name, value)
        wire.end_headers()
        wire.wfile.write(text[: len(text) // 2] if half else text)
        wire.wfile.flush()
        wire.close_connection = wire.close_connection or half


_ERROR = {"message": "", "documentation_url": "", "status": "", "errors": ()}


def _error(status: int, message: str) -> Reply:
    return status, {"message": message, "documentation_url": "https://docs.github.example", "status": str(status)}


def _too_long() -> Reply:
    status, answer = _error(422, "Validation Failed")
    return status, {
        **answer,
        "errors": [{"code": "custom", "message": "body is too long (maximum is 65536 characters)"}],
    }


def _comment(comment: dict[str, Any]) -> Any:
    return component("issue-comment", {key: value for key, value in comment.items() if key != "number"})


def _list_of(answer: Any) -> Any:
    return answer.get(_list_key(answer)) if isinstance(answer, dict) else answer


def _list_key(answer: dict[str, Any]) -> str:
    """What an answer that is an object calls the list in it."""
    return next((key for key in ("check_runs", "workflow_runs", "commits") if key in answer), "")
