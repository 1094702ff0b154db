"""``python -m hfexport_bot.runner.exporter_targets --events-fd N [--module NAME...]``: what a revision's own exporters
reach for.

Reads a ``RunnerSetup`` from standard input and writes one ``ExporterTarget`` a line to descriptor N: every path that a
patch is registered for, and every name that input preparers look up on a model or in its file, for each model that has
it. Of models only the modeling files with these dotted names count, since importing one takes its time. Exporters pass
over what is not there, so the paths are read in their source, not in what they registered.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from hfexport_bot.runner.confine import confine
from hfexport_bot.runner.tree import prepare_tree, put_overlay_first
from hfexport_bot.schema import MAX_NAME_CHARS, ExporterTarget, RunnerSetup

#: Calls that look a name up on a model or in its module: ``hasattr(module, "get_x")``.
_LOOK_UPS = {"hasattr", "getattr", "_find_submodule_attr"}
_PREPARER = "register_export_input_preparer"

#: Modeling files below a package of models.
_MODELING = "*/modeling_*.py"
_MODELS = "transformers.models."


def main(arguments: list[str] | None = None) -> int:
    """Write the targets; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hfexport_bot.runner.exporter_targets")
    parser.add_argument("--events-fd", type=int, required=True, metavar="N", help="descriptor to write to")
    parser.add_argument("--module", dest="modules", action="append", default=[], metavar="NAME")
    given = parser.parse_args(arguments)
    setup = RunnerSetup.model_validate_json(sys.stdin.readline())
    with os.fdopen(given.events_fd, "w") as stream:
        put_overlay_first(setup.search_path)
        from hfexport_bot.runner.engines.package import ExportersPackage  # torch may be the overlay's

        prepare_tree(setup)
        package = ExportersPackage.find()
        models = Path(str(package.module.__file__)).parents[1] / "models"
        for target in targets_of(Path(str(package.module.__file__)).parent, models, given.modules):
            stream.write(target.model_dump_json() + "\n")
    return 0


def targets_of(folder: Path, models: Path, modules: Collection[str]) -> Iterator[ExporterTarget]:
    """The targets in the exporters' files below ``folder``.

    ``models`` holds a folder for each model; ``modules`` are the dotted names of the modeling files that count.

    What a preparer looks up counts in the modeling files that have all the inputs it is for.
    """
    files = [each for each in sorted(models.glob(_MODELING)) if f"{_MODELS}{each.parent.name}.{each.stem}" in modules]
    sources = {file: file.read_text(errors="replace") for file in files}
    for file in sorted(folder.rglob("*.py")):
        module = ".".join(file.relative_to(folder).with_suffix("").parts)
        for function in (node for node in ast.parse(file.read_bytes()).body if isinstance(node, ast.FunctionDef)):
            owner = f"repo:{module}.{function.name}"
            for path in dict.fromkeys(_arguments(function, "register_patch", first=1)):
                if not path.startswith(_MODELS) or any(path.startswith(f"{module}.") for module in modules):
                    yield _target("patch", owner, path, resolves(path))
            inputs = _arguments(function, _PREPARER)
            served = [each for each, source in sources.items() if all(_names(source, name) for name in inputs)]
            for name in dict.fromkeys([*inputs, *_looked_up(function)]) if inputs else ():
                found = [each for each in served if _names(sources[each], name)]
                for each in found:
                    yield _target("marker", owner, f"{name} in {each.parent.name}/{each.name}", True)
                if not found:
                    yield _target("marker", owner, name, False)


def _names(source: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", source) is not None


def resolves(path: str) -> bool:
    """Whether a dotted path leads somewhere; a module that cannot be imported has nothing in it."""
    from exporters.registry import resolve

    try:
        return resolve(path) is not None
    except Exception as error:  # the model's own code
        print(f"{path}: {type(error).__name__}: {error}", file=sys.stderr)
        return False


def _target(kind: Any, owner: str, target: str, resolved: bool) -> ExporterTarget:
    return ExporterTarget(kind=kind, owner=owner[:MAX_NAME_CHARS], target=target[:MAX_NAME_CHARS], resolved=resolved)


def _arguments(function: ast.FunctionDef, name: str, first: int = 0) -> list[str]:
    """The strings that decorators of a name are called with, from the ``first`` argument on."""
    return [
        argument.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).rpartition(".")[2] == name
        for argument in decorator.args[first:]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _looked_up(function: ast.FunctionDef) -> list[str]:
    return [
        argument.value
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _LOOK_UPS
        for argument in node.args[1:2]
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


if __name__ == "__main__":
    confine(Path.home())
    sys.exit(main())
