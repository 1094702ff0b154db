"""What a selection is: modeling files with the classes of them to run, and why; and what is not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hfexport_bot.changes.facts import Facts
from hfexport_bot.changes.layout import ModelFile, model_file
from hfexport_bot.changes.reading import facts_of
from hfexport_bot.changes.tree import StoredTree
from hfexport_bot.schema import Layout, NotRun

ONLY_TEXT = "only comments or docstrings changed"
ONLY_MOVED = "only the order of statements, comments or docstrings changed, and nothing depends on that order"
ONLY_IMPORTS = "only imports or `__all__` changed, and what is used stays the same"
ONLY_MODE = "only the file's mode changed"
SAME_NEEDS = "what a model needs to run did not change"
NOT_EXPORTED = "not on an exported path"
ONLY_VERSION = "the version of the checkout, which is text: by itself it selects nothing"
ONLY_ORDER = "only the order of its entries changed, which are looked up by their keys"
ONLY_CHECKS = "only checks of a test changed, nothing that makes a model's inputs"
#: Begins the reason of files that have nothing to do with models.
NOT_READ = "no model reads"
#: Begins the reason of a settings file that names no model anew.
AFTER_MERGE = "takes effect after merge"

#: Model classes by modeling file, each with the reasons why it is run.
Classes = Mapping[str, Mapping[str, Sequence[str]]]


def is_harmless(entry: NotRun) -> bool:
    """Whether nothing was left unjudged: what changed in a file can affect no model."""
    return entry.reason.startswith((ONLY_TEXT, ONLY_MOVED, ONLY_IMPORTS, ONLY_MODE, SAME_NEEDS, NOT_READ, AFTER_MERGE))


@dataclass(frozen=True)
class AffectedModule:
    """A modeling file to run: where it is on each side (None: it isn't there), its affected classes there, and why.

    ``base_generating`` and ``head_generating`` are the classes whose ``generate`` is affected: those that generate
    among the affected ones, and those affected in nothing else. ``reasons`` by class goes before ``reason``, and so do
    ``causes``, all the changed symbols that lead to it. ``distances``: how many links its chain has.
    """

    base: ModelFile | None
    head: ModelFile | None
    base_classes: tuple[str, ...]
    head_classes: tuple[str, ...]
    reason: str
    base_generating: tuple[str, ...] = ()
    head_generating: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    distances: Mapping[str, int] = field(default_factory=dict)

    @property
    def classes(self) -> tuple[str, ...]:
        """All of them, head's first."""
        return tuple(
            dict.fromkeys((*self.head_classes, *self.head_generating, *self.base_classes, *self.base_generating))
        )

    def reason_of(self, class_name: str) -> str:
        """Why a class is run."""
        return self.reasons.get(class_name, self.reason)

    def causes_of(self, class_name: str) -> frozenset[str]:
        """What of the change leads to a class."""
        return self.causes.get(class_name) or frozenset({self.reason_of(class_name)})

    def by_place(self) -> tuple[AffectedModule, ...]:
        """Itself; for a file that moved, beside it the classes that head no longer has, where base had them."""
        if self.base is None or self.head is None or self.base == self.head:
            return (self,)
        there = {*self.head_classes, *self.head_generating}
        old = tuple(name for name in self.base_classes if name not in there)
        generating = tuple(name for name in self.base_generating if name not in there)
        gone = replace(
            self, head=None, base_classes=old, base_generating=generating, head_classes=(), head_generating=()
        )
        kept = replace(
            self,
            base_classes=tuple(name for name in self.base_classes if name not in old),
            base_generating=tuple(name for name in self.base_generating if name not in generating),
        )
        return kept, gone


@dataclass(frozen=True)
class Selection:
    """What a change affects, what it touches that is not run, and how the change was found out."""

    affected: tuple[AffectedModule, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    notes: tuple[str, ...] = ()


def with_classes(
    affected: Sequence[AffectedModule], more: Classes, base: StoredTree, head: StoredTree, layout: Layout
) -> tuple[AffectedModule, ...]:
    """``affected`` with ``more`` classes, and the reasons of both, by path."""
    found = {file.path: module for module in affected if (file := module.head or module.base) is not None}
    on_base, on_head = facts_of(more, (base, head), layout)
    for path, classes in more.items():
        base_names, base_generating = _defined(on_base.get(path, Facts()), classes)
        head_names, head_generating = _defined(on_head.get(path, Facts()), classes)
        known = found.get(path) or AffectedModule(
            base=model_file(path, layout) if path in on_base else None,
            head=model_file(path, layout) if path in on_head else None,
            base_classes=(),
            head_classes=(),
            reason="",
        )
        own = {name: "; ".join(dict.fromkeys(reasons)) for name, reasons in classes.items()}
        causes = {name: known.causes.get(name, frozenset()) | frozenset(reasons) for name, reasons in classes.items()}
        found[path] = replace(
            known,
            base_classes=_joined(known.base_classes, base_names),
            head_classes=_joined(known.head_classes, head_names),
            reason=known.reason or "; ".join(dict.fromkeys(own.values())),
            base_generating=_joined(known.base_generating, base_generating),
            head_generating=_joined(known.head_generating, head_generating),
            reasons={
                **known.reasons,
                **{name: "; ".join(filter(None, (known.reasons.get(name), text))) for name, text in own.items()},
            },
            causes={**known.causes, **causes},
        )
    return tuple(found[path] for path in sorted(found))


def _defined(facts: Facts, names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those of the names that a file defines as models, and as ones that generate."""
    return tuple(n for n in names if n in facts.models), tuple(n for n in names if n in facts.generating)


def _joined(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*first, *second)))
