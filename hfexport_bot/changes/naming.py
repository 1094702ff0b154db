"""What the configurations and tests of a model name: other types of models, and keys of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property

from hfexport_bot.changes import policy
from hfexport_bot.changes.graph import Graph


class Naming:
    """Looks names up in the configurations and tests of models, each model a folder."""

    def __init__(self, graph: Graph) -> None:
        self._modules = graph.modules
        self._said = cache(self._read_said)

    def names(self, folder: str, model_type: str) -> bool:
        """Whether the configurations or tests of a model's folder name a type of model, or a class of it."""
        if not folder.startswith(policy.MODELS):
            return False
        strings, classes = self._said(folder)
        return model_type in strings or not classes.isdisjoint(self._classes_of_type.get(model_type, ()))

    def _read_said(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        """The strings in the configurations and tests of a model's folder, and what else they name."""
        strings: set[str] = set()
        names: set[str] = set()
        tests = f"tests/models/{folder.removeprefix(policy.MODELS)}"
        for path in (*self._folders.get(tests, ()), *self._folders.get(folder, ())):
            test = path.startswith(tests)
            if not test and not path.startswith(f"{folder}/configuration_"):
                continue
            for facts in self._modules.facts[path]:
                for name, row in facts.rows.items():
                    for key, part in row[3].items():
                        if not (test and policy.is_check(key or name)):
                            strings.update(part[3])
                            # A configuration that derives from another is made of its own, which names it in its bases.
                            names.update(part[0] if test or key else ())
        return frozenset(strings), frozenset(names)

    def may_ask_for(self, path: str, key: str) -> bool:
        """Whether a model's code may look an entry up by its key: its configurations or tests, those of models that
        use its code, or what testers have in common name the key. Code of no model may always."""
        folder = path.rpartition("/")[0]
        if not folder.startswith(policy.MODELS):
            return True
        return key in self._common_words or any(self.names(each, key) for each in (folder, *self.borrowers(folder)))

    def borrowers(self, folder: str) -> frozenset[str]:
        """The folders of models whose modeling files import from that of another."""
        return self._borrowers.get(folder, frozenset())

    @cached_property
    def _common_words(self) -> frozenset[str]:
        """Strings that the testers of all models have in common."""
        return frozenset(
            word
            for path in (*self._folders.get(policy.TESTS.rstrip("/"), ()), policy.TESTING)
            for facts in self._modules.facts.get(path, ())
            for name, row in facts.rows.items()
            if "tester" in name.lower()
            for key, part in row[3].items()
            if not policy.runs_in_a_test_only(name, key)
            for word in part[3]
        )

    @cached_property
    def _borrowers(self) -> Mapping[str, frozenset[str]]:
        """Each model's folder, and those whose modeling files import from it."""
        found: dict[str, set[str]] = {}
        for path, versions in self._modules.facts.items():
            folder = path.rpartition("/")[0]
            if folder.startswith(policy.MODELS) and not folder.startswith(policy.AUTO.rstrip("/")):
                for row in (row for facts in versions for row in facts.imports if row.level > 1):
                    module = self._modules.module(path, row.level, row.module) or ""
                    if module.startswith(policy.MODELS) and not module.startswith(f"{folder}/"):
                        found.setdefault(module.rpartition("/")[0], set()).add(folder)
        return {folder: frozenset(users) for folder, users in found.items()}

    @cached_property
    def _folders(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for path in self._modules.facts:
            found.setdefault(path.rpartition("/")[0], []).append(path)
        return found

    @cached_property
    def _classes_of_type(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for path, versions in self._modules.facts.items():
            if path.startswith(policy.AUTO):
                for facts in versions:
                    for row in facts.rows.values():
                        for key, part in row[3].items():
                            if key.startswith("["):
                                found.setdefault(key.strip("[]'\""), set()).update(part[3])
        return {key: frozenset(classes) for key, classes in found.items()}
