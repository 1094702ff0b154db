"""An action's inputs, as GitHub hands them over, and what each of them is called on the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from hfexport_bot.errors import UsageError

#: What each input that is an option of `run` or `check` is called there; lists give it several times.
OPTIONS: Mapping[str, str] = {
    "backends": "--backend",
    "shapes": "--shapes",
    "tasks": "--task",
    "engine": "--engine",
    "install": "--install",
    "seconds": "--seconds",
    "memory-gb": "--memory-gb",
    "settings": "--settings",
}
#: Those of `run` alone.
RUN_OPTIONS: Mapping[str, str] = {
    "fail-on": "--fail-on",
    "budget-minutes": "--budget-minutes",
    "max-models": "--max-models",
}
#: Those of `publish`.
PUBLISH_OPTIONS: Mapping[str, str] = {
    "fail-on": "--fail-on",
    "comment": "--comment",
    "check-name": "--check-name",
    "settings": "--settings",
    "head": "--head",
}
LISTS = frozenset({"models", "backends", "shapes", "tasks", "fail-on"})
SWITCHES = frozenset({"install"})
#: Inputs that are no option of a command.
OWN = frozenset({"models", "base", "out", "mode", "token", "cache", "accept"})
#: Every input of action.yml.
INPUTS = frozenset({*OPTIONS, *RUN_OPTIONS, *PUBLISH_OPTIONS, *OWN})
_TRUE, _FALSE = frozenset({"true", "yes", "on", "1"}), frozenset({"", "false", "no", "off", "0"})
_NAMES = {option: name for name, option in {**OPTIONS, **RUN_OPTIONS, **PUBLISH_OPTIONS}.items()} | {
    "--base": "base",
    "--model": "models",
    "--out": "out",
}


@dataclass(frozen=True)
class Inputs:
    """An action's inputs by name: texts, empty where they are not given."""

    values: Mapping[str, str]

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Inputs:
        """Read ``INPUT_FAIL-ON``, as a container gets it, or ``INPUT_FAIL_ON``, which a shell can set too."""
        found = {}
        for name in INPUTS:
            key = f"INPUT_{name.upper()}"
            found[name] = (environment.get(key) or environment.get(key.replace("-", "_")) or "").strip()
        return cls(found)

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def words(self, name: str) -> list[str]:
        """A list, separated by commas, blanks or lines."""
        return self[name].replace(",", " ").split()

    def options(self, names: Mapping[str, str]) -> Iterator[str]:
        """Inputs as options of a command."""
        for name, option in names.items():
            if name in SWITCHES:
                yield from [option] if self._switch(name) else []
                continue
            for value in self.words(name) if name in LISTS else filter(None, [self[name]]):
                yield f"{option}={value}"

    def acceptance(self) -> tuple[str, ...]:
        """The case to accept, and why; nothing where there is none."""
        case, _, reason = self["accept"].partition(" ")
        if case and not reason.strip():
            raise UsageError("input accept: give a case and then the reason, such as: bert/* not shipped yet")
        return (case, reason.strip()) if case else ()

    def problems(self, commands: Mapping[str, click.Command]) -> Iterator[tuple[str, str]]:
        """The inputs that are wrong, as the options that they are would be found, each with what is wrong."""
        for command, names in (("run", {**OPTIONS, **RUN_OPTIONS}), ("publish", PUBLISH_OPTIONS)):
            context = click.Context(commands[command])
            known = {option: each for each in commands[command].params for option in each.opts}
            for name, option in names.items():
                values = self.words(name) if name in LISTS else [] if name in SWITCHES else filter(None, [self[name]])
                for value in values:
                    try:
                        known[option].type.convert(value, known[option], context)
                    except click.BadParameter as error:
                        yield name, error.message
        for name in SWITCHES:
            try:
                self._switch(name)
            except UsageError as error:
                yield name, str(error)
        try:
            self.acceptance()
        except UsageError as error:
            yield "accept", str(error)

    def without(self, names: set[str]) -> Inputs:
        """The inputs but for some, which are as if they were not given."""
        return Inputs({**self.values, **dict.fromkeys(names, "")})

    def _switch(self, name: str) -> bool:
        value = self[name].lower()
        if value not in _TRUE | _FALSE:
            raise UsageError(f"{self[name]!r} is neither true nor false")
        return value in _TRUE


def in_words_of_inputs(message: str) -> str:
    """A message of a command that names inputs where it named its options."""
    return re.sub(
        r"--[a-z][a-z-]*", lambda found: f"input {_NAMES[found[0]]}" if found[0] in _NAMES else found[0], message
    )
