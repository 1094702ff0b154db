"""Cut GitHub's published API description down to what the bot uses: ``python trim_openapi.py api.github.com.json``.

The description is ``generated/api.github.com.json`` of the npm package ``@octokit/openapi`` (``npm pack
@octokit/openapi``; MIT licence, Octokit contributors). Written beside this file; nothing is changed but what is left
out: other endpoints and events, what nothing refers to any more, examples and prose.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TRIMMED = Path(__file__).with_name("api.github.json")

_REPOSITORY = "/repos/{owner}/{repo}"
ENDPOINTS = {
    "/user": ("get",),
    f"{_REPOSITORY}/actions/workflows/{{workflow_id}}/runs": ("get",),
    f"{_REPOSITORY}/activity": ("get",),
    f"{_REPOSITORY}/check-runs": ("post",),
    f"{_REPOSITORY}/check-runs/{{check_run_id}}": ("get", "patch"),
    f"{_REPOSITORY}/collaborators/{{username}}/permission": ("get",),
    f"{_REPOSITORY}/commits/{{ref}}": ("get",),
    f"{_REPOSITORY}/commits/{{ref}}/check-runs": ("get",),
    f"{_REPOSITORY}/compare/{{basehead}}": ("get",),
    f"{_REPOSITORY}/contents/{{path}}": ("get",),
    f"{_REPOSITORY}/issues/comments/{{comment_id}}": ("patch", "delete"),
    f"{_REPOSITORY}/issues/{{issue_number}}/comments": ("get", "post"),
    f"{_REPOSITORY}/pulls": ("get",),
    f"{_REPOSITORY}/pulls/{{pull_number}}": ("get",),
}
EVENTS = (
    "issue-comment-created",
    "merge-group-checks-requested",
    "pull-request-synchronize",
    "push",
    "workflow-dispatch",
    "workflow-run-completed",
)
ERROR = "#/components/schemas/basic-error"

_PROSE = frozenset({"description", "summary", "example", "examples", "externalDocs", "tags", "title", "deprecated"})
#: Below these, keys are names that GitHub gave and not words of OpenAPI.
_NAMES = frozenset({"properties", "schemas", "parameters", "responses", "headers", "mapping", "paths", "content"})


def trim(description: dict[str, Any]) -> dict[str, Any]:
    """The description with `ENDPOINTS`, `EVENTS` and what they refer to."""
    paths = {
        path: {method: description["paths"][path][method] for method in methods} for path, methods in ENDPOINTS.items()
    }
    events = {name: description["x-webhooks"][name]["post"]["requestBody"] for name in EVENTS}
    kept: dict[str, dict[str, Any]] = {}
    paths, events = _plain(paths), _plain(events)
    waiting = [ERROR, *_references(paths), *_references(events)]
    while waiting:
        _, _, group, name = waiting.pop().split("/")
        if name not in kept.setdefault(group, {}):
            kept[group][name] = _plain({group: {name: description["components"][group][name]}})[group][name]
            waiting += _references(kept[group][name])
    return {
        "openapi": description["openapi"],
        "info": {
            "title": "GitHub's REST API, the part in use",
            "version": description["info"]["version"],
            "license": {"name": "MIT, Copyright (c) 2020 Octokit contributors"},
        },
        "servers": description["servers"],
        "paths": paths,
        "x-webhooks": events,
        "components": {group: dict(sorted(kept[group].items())) for group in sorted(kept)},
    }


def _plain(node: Any, names: bool = False) -> Any:
    """``node`` without prose and extensions; ``names``: its keys are names that GitHub gave."""
    if isinstance(node, list):
        return [_plain(each) for each in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _plain(value, not names and key in _NAMES) for key, value in node.items() if names or _counts(key)}
    for response in kept.get("responses", {}).values() if not names else ():
        if "$ref" not in response:
            response["description"] = ""  # it must have one
    return kept


def _counts(key: str) -> bool:
    return not (key in _PROSE or key.startswith("x-"))


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
        return own + [found for value in node.values() for found in _references(value)]
    return [found for each in node for found in _references(each)] if isinstance(node, list) else []


if __name__ == "__main__":
    text = json.dumps(trim(json.loads(Path(sys.argv[1]).read_text())), indent=1)
    TRIMMED.write_text(text + "\n")
    print(f"{TRIMMED.name}: {len(text) >> 10} KiB")
