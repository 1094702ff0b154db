"""The smallest JSON that GitHub's API description allows, with the values that a test cares about put in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from tests.hfexport_bot.github.trim_openapi import TRIMMED

_FORMATS = {
    "date-time": "2026-11-30T12:00:00Z",
    "email": "octocat@example.org",
    "uri": "https://github.example/x",
}


@cache
def description() -> dict[str, Any]:
    """GitHub's API description, the part in use."""
    return json.loads(TRIMMED.read_text())


def fill(schema: Mapping[str, Any], values: Any = None) -> Any:
    """The smallest instance of a schema with ``values`` in it, which for objects may be partial at any depth."""
    schema = _resolved(schema)
    if isinstance(values, Mapping):
        properties = schema.get("properties", {})
        wanted = {*schema.get("required", ()), *values}
        return {name: fill(properties.get(name, {}), values.get(name, _Missing)) for name in sorted(wanted)}
    if isinstance(values, list):
        return [fill(schema.get("items", {}), value) for value in values]
    if values is not _Missing and values is not None:
        return values
    if values is None or schema.get("nullable"):
        return None
    return _smallest(schema)


def component(name: str, values: Any) -> Any:
    """The smallest instance of one of GitHub's own schemas."""
    return fill(description()["components"]["schemas"][name], values)


class _Missing:
    """A value that a test does not care about."""


def _smallest(schema: Mapping[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type") or ("object" if "properties" in schema else "string")
    if kind == "object":
        return fill(schema, {})
    if kind == "array":
        return [fill(schema["items"], _Missing)] * schema.get("minItems", 0)
    if kind == "string":
        return _FORMATS.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 1)))
    return {"integer": schema.get("minimum", 1), "number": 1.0, "boolean": False}[kind]


def _resolved(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a reference leads to, with the parts of ``allOf`` put together and the first choice taken."""
    while True:
        if "$ref" in schema:
            _, _, group, name = schema["$ref"].split("/")
            schema = description()["components"][group][name]
            continue
        for choice in ("oneOf", "anyOf"):
            if choice in schema and "properties" not in schema:
                schema = {**schema[choice][0], "nullable": schema.get("nullable", False)}
                break
        else:
            break
    merged = dict(schema)
    for part in schema.get("allOf", ()):
        other = _resolved(part)
        merged["properties"] = {**merged.get("properties", {}), **other.get("properties", {})}
        merged["required"] = [*merged.get("required", ()), *other.get("required", ())]
        merged.setdefault("type", other.get("type"))
    return merged


def event(name: str, values: Any) -> Any:
    """The smallest payload of an event (``workflow-run-completed``)."""
    return fill(description()["x-webhooks"][name]["content"]["application/json"]["schema"], values)
