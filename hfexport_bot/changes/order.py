"""What a new order of statements changes, and other conditions around them.

A file's statements run one after the other as it is imported. Those that both sides have are followed on either: a
definition whose last value is another one, or a statement that reads a name when it has another value, is changed.
Everything else may stand in any order. In some classes the order of the members itself has a meaning.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hfexport_bot.changes.modeling import parse
from hfexport_bot.changes.running import Running, Step, steps
from hfexport_bot.changes.units import BODY, WHOLE, File, acts_on_others, is_layer

#: How a definition is changed: entries or fields of it have another order; it comes to another value by a new order of
#: statements; other conditions stand around it.
REORDERED, MOVED, CONDITION = "reordered", "moved", "under another condition"

#: Statements that are no definition of the names they bind.
_OF_BODY = (ast.Delete, ast.For, ast.While, ast.Match)
_ENUMS = re.compile(r"\w*(?:Enum|Flag)")
#: Classes whose fields are given by name.
_BY_NAME = re.compile(r"\w*(?:Config|PreTrainedModel)")

#: The place of a star import: its level and module.
Star = tuple[int, str]
#: The values of names as they are read.
_Reading = Mapping[str, object]


@dataclass
class Order:
    """What was found. ``parts``: how each definition and part is changed; ``imports``: the same of names that imports
    alone bind. ``starred``: names that one of some star imports may bind otherwise; under None those that several of
    them bring. ``early``: a name that is used before it has a value. ``acts``: what moved does something to others.
    ``any``: there is a new order at all."""

    parts: dict[tuple[str, str], str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    starred: dict[str | None, frozenset[Star]] = field(default_factory=dict)
    stars: frozenset[Star] = frozenset()
    early: str = ""
    acts: bool = False
    any: bool = False

    def add(self, step: Step, how: str, owners: Iterable[str] = ()) -> None:
        """Take in what a step binds, or what else it is about; otherwise that it does something."""
        if step.row is not None:
            if _star(step) is None:
                self.imports.setdefault(step.row.local, how)
        elif names := (*owners, *(() if isinstance(step.node, _OF_BODY) else step.binds)):
            for name in names:
                self.parts.setdefault((name, WHOLE), how)
        else:
            self.parts.setdefault((BODY, WHOLE), how)
            self.acts |= acts_on_others(step.node)


def changed_order(files: Sequence[File], partial: Sequence[ast.Module], common: Counter[bytes]) -> Order:
    """Compare two sides of a file. ``partial`` are those of its statements that are not ``common`` to both by their
    text; the rest of the file is parsed only where its statements have a new order."""
    found = Order()
    lines = [[(node.lineno, each) for node in module.body for each in steps([node])] for module in partial]
    sides = [[step for _, step in side] for side in lines]
    for step in _under_other_conditions(*sides):
        found.add(step, CONDITION)
    _classes(found, *sides)
    stars = [Counter((_star(step), step.context) for step in side if step.runs) for side in sides]
    found.stars = frozenset(star for star, _ in (stars[0] - stars[1]) + (stars[1] - stars[0]) if star is not None)
    tokens = [_tokens(file, side, common) for file, side in zip(files, lines, strict=True)]
    if _common(*tokens):
        found.any = True
        _follow(found, [_Side.of_file(file, common) for file in files])
    return found


def _star(step: Step) -> Star | None:
    """The place of a star import; None for any other step."""
    return (step.row.level, step.row.module) if step.row is not None and step.row.name == "*" else None


def _under_other_conditions(old: Sequence[Step], new: Sequence[Step]) -> Iterator[Step]:
    """The steps that both sides have and that stand under other conditions."""
    before, after = _contexts(old), _contexts(new)
    for step in new:
        if step.key in before and before[step.key] != after[step.key]:
            yield step


def _contexts(side: Iterable[Step]) -> dict[str, Counter[tuple[str, ...]]]:
    found: dict[str, Counter[tuple[str, ...]]] = {}
    for step in side:
        found.setdefault(step.key, Counter())[step.around] += 1
    return found


def _common(old: Sequence[object], new: Sequence[object]) -> bool:
    """Whether what two sequences have in common has another order."""
    if old == new:
        return False
    both = Counter(old) & Counter(new)
    return [*_kept(old, both)] != [*_kept(new, both)]


def _kept(side: Iterable[object], both: Counter[object]) -> Iterator[object]:
    left = both.copy()
    for each in side:
        left[each] -= 1
        if left[each] >= 0:
            yield each


def _tokens(file: File, partial: Iterable[tuple[int, Step]], common: Counter[bytes]) -> list[object]:
    """What a file's statements are, in their order: by their text where both sides have it, or else by their steps."""
    left = common.copy()
    found: list[tuple[int, object]] = []
    for (first, _), text in zip(file.spans or (), file.statements, strict=True):
        left[text] -= 1
        if left[text] >= 0:
            found.append((first, text))
    found += [(line, (step.key, step.context)) for line, step in partial]
    return [token for _, token in sorted(found, key=lambda each: each[0])]


class _Placed(NamedTuple):
    """A step with what tells it from others of its key: the text of its statement, where both sides have it, or which
    of them it is."""

    step: Step
    identity: tuple[object, ...]


@dataclass(frozen=True)
class _Side:
    """The steps of one side. ``postponed``: type hints are not evaluated."""

    steps: Sequence[_Placed]
    postponed: bool = False

    @classmethod
    def of_file(cls, file: File, common: Counter[bytes]) -> _Side:
        """Those of a whole file."""
        body = parse(file.source).body
        starts, texts, left = [first for first, _ in file.spans or ()], [*file.statements], common.copy()
        shared: list[bool] = []
        for text in texts:
            left[text] -= 1
            shared.append(left[text] >= 0)
        found: list[tuple[Step, object]] = []
        for node in body:
            place = bisect_right(starts, node.lineno) - 1
            mark = texts[place] if place >= 0 and shared[place] else None
            found += [(step, mark) for step in steps([node])]
        return cls(_numbered(found), any(getattr(node, "module", "") == "__future__" for node in body))


def _numbered(found: Iterable[tuple[Step, object]]) -> list[_Placed]:
    met: Counter[object] = Counter()
    placed: list[_Placed] = []
    for step, mark in found:
        met[step.key, step.context] += mark is None
        number = met[step.key, step.context]
        placed.append(_Placed(step, (step.key, step.context, number if mark is None else mark)))
    return placed


# -- what runs in another order --------------------------------------------------------------------------------------


def _follow(found: Order, sides: Sequence[_Side], owner: str = "") -> None:
    """Run both sides' common steps on paper, and compare what they come to. ``owner``: the class that they are in."""
    identities = [Counter(each.identity for each in side.steps) for side in sides]
    numbers: dict[object, int] = {}
    before, after = (_Followed(side, identities[0] & identities[1], numbers) for side in sides)
    changed = [each for each in after.kept if _differ(before.readings[each.identity], after.readings[each.identity])]
    for name in before.values.keys() & after.values.keys():
        one, other = before.values[name], after.values[name]
        if one.bound != other.bound or (one.items() != other.items() and after.kinds.get(name) != "import"):
            users = after.kept if name in after.kinds else ()
            changed += [each for each in users if name in each.step.binds]
            changed += [each for each in after.kept if not users and name in after.changes(each.step)]
    for each in changed:
        if not owner:
            found.add(each.step, MOVED, after.about(each.step))
        for name in each.step.binds if owner else ():
            found.parts.setdefault((owner, name), MOVED)
    for name in before.stars_of.keys() | after.stars_of.keys():
        for met in zip(before.stars_of.get(name, ()), after.stars_of.get(name, ()), strict=False):
            if met[0] != met[1]:
                found.starred[name] = found.starred.get(name, frozenset()) | (met[0] ^ met[1])
    if before.stars != after.stars:
        found.starred[None] = frozenset(before.stars)
    if not owner and after.early not in before.all_early:
        found.early = after.early


def _differ(old: Sequence[_Reading], new: Sequence[_Reading]) -> bool:
    """Whether names that are read on both sides have other values."""
    return any(
        one[name] != other[name] for one, other in zip(old, new, strict=True) for name in one.keys() & other.keys()
    )


@dataclass
class _Value:
    """What a name holds, as the numbers of what made it so; ``since`` counts the star imports before that."""

    bound: int = 0
    since: int = 0
    set: dict[str, int] = field(default_factory=dict)

    def items(self) -> tuple[object, ...]:
        """Attributes in any order, entries in that in which they were set."""
        return (frozenset(self.set.items()), *(item for item in self.set if item[:1] == "["))


class _Followed:
    """The common steps of one side, followed. ``numbers`` is shared by both sides."""

    def __init__(self, side: _Side, both: Counter[tuple[object, ...]], numbers: dict[object, int]) -> None:
        left = both.copy()
        self.kept: list[_Placed] = []
        for placed in side.steps:
            left[placed.identity] -= 1
            if placed.step.runs and left[placed.identity] >= 0:
                self.kept.append(placed)
        self._numbers = numbers
        self._running = Running([each.step for each in side.steps], side.postponed)
        self.kinds = {name: _kind(each.step) for each in self.kept for name in each.step.binds}
        self.values: dict[str, _Value] = {}
        self.stars: list[Star] = []
        #: What each step reads, and by name the star imports that may have bound it: as it is read, and in the end.
        self.readings: dict[tuple[object, ...], list[_Reading]] = {}
        self.stars_of: dict[str, list[frozenset[Star]]] = {}
        #: Names that are read before they have a value, and the first that surely is.
        self.all_early: set[str] = {""}
        self.early = ""
        for placed in self.kept:
            self._run(placed)
        for name in sorted(self.values):
            self._note_stars(name)

    def changes(self, step: Step) -> list[str]:
        """The names whose values a step changes without binding them."""
        return [each.name for each in self._running.effects(step, self.kinds)]

    def about(self, step: Step) -> list[str]:
        """The constants of the file that a step changes, where it does nothing else."""
        names = self.changes(step)
        return names if all(self.kinds.get(name) == "constant" for name in names) else []

    def _number(self, value: object) -> int:
        return self._numbers.setdefault(value, len(self._numbers) + 1)

    def _note_stars(self, name: str) -> None:
        value = self.values.get(name)
        self.stars_of.setdefault(name, []).append(frozenset(self.stars[value.since if value else 0 :]))

    def _run(self, placed: _Placed) -> None:
        step, number = placed.step, self._number(placed.identity)
        effects = {each.name: each.item for each in self._running.effects(step, self.kinds)}
        reads = sorted(self._running.reads(step))
        states: dict[str, object] = {}
        for name in reads:
            value = self.values.get(name)
            if name not in effects:
                states[name] = value and (value.bound, *value.items())
            elif self.kinds.get(name) == "import" and value is not None:
                states[name] = (value.bound, value.set.get(effects[name]), value.set.get(""))
            self._note_stars(name)
        self.readings.setdefault(placed.identity, []).append(states)
        if not self.stars:
            early = sorted(each for each in self._running.named(step) if each in self.kinds and each not in self.values)
            self.all_early.update(early)
            if not step.context and not self.early:
                self.early = next(iter(early), "")
        for name, item in effects.items():
            value = self.values.setdefault(name, _Value(0, len(self.stars)))
            if item:
                value.set[item] = self._number((value.set.get(item), number))
            else:
                value.set = {"": self._number((*value.items(), number))}
        for name in step.binds:
            if (star := _star(step)) is not None:
                self.stars.append(star)
                continue
            known = self.values.get(name)
            if known is not None and (step.context or isinstance(step.node, _ADDS)):
                bound = self._number((known.bound, *known.items(), number))
            else:
                bound = number
            self.values[name] = _Value(bound, len(self.stars))


#: Statements after which a name may still have the value that it had before, or one that depends on it.
_ADDS = (ast.AugAssign, ast.For, ast.While, ast.Match)


def _kind(step: Step) -> str:
    if step.row is not None:
        return "import"
    return "constant" if isinstance(step.node, ast.Assign | ast.AnnAssign | ast.AugAssign) else "definition"


# -- classes ---------------------------------------------------------------------------------------------------------


def _classes(found: Order, old: Sequence[Step], new: Sequence[Step]) -> None:
    """Compare the order of members, and the conditions around them, in the classes of both sides."""
    sides = [_by_name(side) for side in (old, new)]
    for name in sides[0].keys() & sides[1].keys():
        for before, after in zip(sides[0][name], sides[1][name], strict=False):
            _class(found, before, after)


def _by_name(side: Iterable[Step]) -> Mapping[str, list[ast.ClassDef]]:
    found: dict[str, list[ast.ClassDef]] = {}
    for step in side:
        if isinstance(step.node, ast.ClassDef):
            found.setdefault(step.node.name, []).append(step.node)
    return found


def _class(found: Order, old: ast.ClassDef, new: ast.ClassDef) -> None:
    sides = [[*steps(node.body)] for node in (old, new)]
    for step in _under_other_conditions(*sides):
        for name in step.binds or (WHOLE,):
            found.parts.setdefault((new.name, name), CONDITION)
    fields = [[*_fields(node, side)] for node, side in zip((old, new), sides, strict=True)]
    if _common(*fields):
        found.parts.setdefault((new.name, WHOLE), REORDERED)
    tokens = [[(step.key, step.context) for step in side] for side in sides]
    if _common(*tokens):
        found.any = True
        _follow(found, [_Side(_numbered((step, None) for step in side)) for side in sides], new.name)


def _fields(node: ast.ClassDef, side: Iterable[Step]) -> Iterator[str]:
    """The members of a class whose order has a meaning: the fields that annotations make, and what an enumeration
    lists."""
    bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    enumerates = any(map(_ENUMS.fullmatch, bases))
    by_name = bool(bases) and all(map(_BY_NAME.fullmatch, bases)) and not _is_data(node)
    if is_layer(node) or by_name:
        return
    for step in side:
        if isinstance(step.node, ast.AnnAssign) and isinstance(step.node.target, ast.Name):
            yield step.node.target.id
        elif enumerates and isinstance(step.node, ast.Assign):
            yield from step.binds


def _is_data(node: ast.ClassDef) -> bool:
    return any("dataclass" in ast.unparse(each) for each in node.decorator_list)
