"""Checkpoints come from a hub, by the real client, at a pinned commit; what goes wrong is one line."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hfexport_bot.execution.hub import Checkpoint, Fetched, HubError, fetch_checkpoint, fetch_checkpoints

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": b"weights",
    "modeling_own.py": b"raise SystemExit",
    "pytorch_model.bin": b"pickle",
    "onnx/model.safetensors": b"elsewhere",
}


class Hub(BaseHTTPRequestHandler):
    """The parts of the hub's API that fetch one repository, ``tiny/bert``."""

    files = FILES
    asked: list[str]
    status = 200
    tokens: list[str]

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(f"{self.command} {path}")
        self.tokens.append(self.headers.get("authorization") or "")
        if self.status != 200:
            code = {401: "RepoNotFound", 403: "GatedRepo"}.get(self.status, "")
            return self._send(self.status, b"{}", {"X-Error-Code": code}, with_body)
        if path in (f"/api/models/tiny/bert{end}" for end in ("", "/revision/main", f"/revision/{COMMIT}")):
            siblings = [{"rfilename": name, "size": len(data)} for name, data in self.files.items()]
            content = {"id": "tiny/bert", "modelId": "tiny/bert", "sha": COMMIT, "siblings": siblings}
            return self._send(200, json.dumps(content).encode(), {}, with_body)
        if path.startswith(f"/api/models/tiny/bert/tree/{COMMIT}"):
            tree = [{"type": "file", "path": n, "size": len(d), "oid": "0" * 40} for n, d in self.files.items()]
            return self._send(200, json.dumps(tree).encode(), {}, with_body)
        name = path.removeprefix(f"/tiny/bert/resolve/{COMMIT}/")
        if name in self.files:
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{abs(hash(name))}"'}
            return self._send(200, self.files[name], headers, with_body)
        code = "RevisionNotFound" if path.startswith("/api/models/tiny/bert/") else "RepoNotFound"
        return self._send(404, b"{}", {"X-Error-Code": code}, with_body)

    def _send(self, status: int, body: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)


@pytest.fixture
def hub() -> Iterator[type[Hub]]:
    """A hub of the test's own, whose answers it may change."""
    handler = type("ThisHub", (Hub,), {"asked": [], "tokens": [], "wbufsize": -1})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield handler
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def fetch(hub: type[Hub], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checkpoint]:
    monkeypatch.setenv("HF_TOKEN", "secret")
    user = {"HF_ENDPOINT": hub.endpoint, "XDG_CACHE_HOME": str(tmp_path)}
    return lambda name, **more: fetch_checkpoint(name, environment=user, **more)


def test_a_checkpoint_is_fetched_at_its_commit_without_code_or_token(
    hub: type[Hub], fetch: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    found = fetch("tiny/bert")
    assert found == Checkpoint("tiny/bert", COMMIT, tmp_path / "hfexport-bot" / "checkpoints" / "tiny--bert" / COMMIT)
    assert sorted(each.name for each in found.folder.iterdir()) == ["config.json", "model.safetensors"]
    assert (found.folder / "model.safetensors").read_bytes() == b"weights"
    assert set(hub.tokens) == {""}
    assert not any("modeling_own" in each or "pytorch_model" in each for each in hub.asked)


def test_a_known_commit_needs_no_network(hub: type[Hub], fetch: Callable[..., Checkpoint]) -> None:
    found = fetch(f"tiny/bert@{COMMIT}")
    hub.asked.clear()
    assert fetch(f"tiny/bert@{COMMIT}") == found
    assert hub.asked == []
    assert fetch("tiny/bert@main") == found
    assert hub.asked == ["GET /api/models/tiny/bert/revision/main"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny/gone", "the hub has no public repository tiny/gone, and no token is sent"),
        ("tiny/bert@no-such", "tiny/bert has no revision 'no-such'"),
        ("a--b/c", "a--b/c: "),
    ],
)
def test_a_wrong_name_is_said_so(fetch: Callable[..., Checkpoint], name: str, message: str) -> None:
    with pytest.raises(HubError) as caught:
        fetch(name)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (401, "the hub has no public repository tiny/bert, and no token is sent"),
        (403, "tiny/bert is gated, and no token is sent: name a public checkpoint"),
        (400, "the hub answered 400 for tiny/bert"),
    ],
)
def test_a_refusal_is_said_so(hub: type[Hub], fetch: Callable[..., Checkpoint], status: int, message: str) -> None:
    hub.status = status
    with pytest.raises(HubError) as caught:
        fetch("tiny/bert")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model.safetensors": b""}, "tiny/bert has no config.json"),
        (
            {"config.json": b"", "pytorch_model.bin": b""},
            "tiny/bert has no model.safetensors, and no other weights are",
        ),
        (
            {"config.json": b"", "model.safetensors": b"x" * 2_000},
            "tiny/bert has 0.0 GB of weights; at most 0.0 GB are",
        ),
    ],
)
def test_what_is_not_wanted_is_not_fetched(
    hub: type[Hub], fetch: Callable[..., Checkpoint], files: dict[str, bytes], message: str
) -> None:
    hub.files = files
    with pytest.raises(HubError, match=f"^{message}"):
        fetch("tiny/bert", max_bytes=1_000)
    assert not any("resolve" in each for each in hub.asked)


def test_a_hub_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"^the hub did not answer for tiny/bert: "):
        fetch_checkpoint(
            "tiny/bert", environment={"HF_ENDPOINT": "http://127.0.0.1:9", "XDG_CACHE_HOME": str(tmp_path)}
        )


def test_each_repository_is_fetched_once_and_each_failure_told() -> None:
    asked = []

    def fetch(name: str) -> Checkpoint:
        asked.append(name)
        if name == "b/gone":
            raise HubError("no such repository")
        return Checkpoint("a/x", COMMIT, Path("/cache/a--x"))

    wanted = {"AModel": "a/x@main", "a": "a/x@main", "BModel": "b/gone"}
    assert fetch_checkpoints(wanted, allowed=True, fetch=fetch) == Fetched(
        {"AModel": "/cache/a--x", "a": "/cache/a--x"},
        {"BModel": "no such repository"},
        ("checkpoint a/x at 0123456789ab", "checkpoint b/gone: no such repository"),
    )
    assert asked == ["a/x@main", "b/gone"]


def test_without_leave_nothing_is_fetched() -> None:
    def fetch(name: str) -> Checkpoint:
        raise AssertionError(name)

    assert fetch_checkpoints({"AModel": "a/x"}, allowed=False, fetch=fetch) == Fetched(
        problems={"AModel": "the settings name a/x for it, and fetch it with `allow-hub: true`"}
    )
