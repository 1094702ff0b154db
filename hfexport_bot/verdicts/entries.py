"""Lists of entries that come with the package as YAML, and the patterns that these tell failures by. Pure."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Annotated, TypeVar

import yaml
from pydantic import AfterValidator

from hfexport_bot.schema import Record

_Entry = TypeVar("_Entry", bound=Record)


def _compiles(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


#: A regular expression.
Pattern = Annotated[str, AfterValidator(_compiles)]


def read_entries(text: str, kind: type[_Entry]) -> tuple[_Entry, ...]:
    """Read entries from YAML. Raises ``ValueError`` (pydantic's) for one that is not as described."""
    return tuple(kind.model_validate(entry) for entry in yaml.safe_load(text))


def packaged_entries(name: str, kind: type[_Entry]) -> tuple[_Entry, ...]:
    """The entries of a file beside this one."""
    return read_entries(files(__package__).joinpath(name).read_text(encoding="utf-8"), kind)
