"""Who uses what: the definitions of a repository, the uses of each of them, and which class derives from which.

Nothing is worked out before it is asked for: a change usually touches little of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from typing import NamedTuple

from hfexport_bot.changes.facts import Definition, Facts
from hfexport_bot.changes.modules import ANYTHING, NAMESPACE, ON_DEMAND, Modules, Target, module_of
from hfexport_bot.changes.units import BODY
from hfexport_bot.changes.uses import ASKED


class Use(NamedTuple):
    """A part of a definition that uses something: ``after`` is what follows the name, ``["key"]`` or ``name``."""

    path: str
    definition: str
    part: str
    after: str = ""


class Mention(NamedTuple):
    """A part of a definition that takes an attribute: of self (``own``), of the definition ``root``, or of anything."""

    path: str
    definition: str
    part: str
    own: bool
    root: str


class Graph:
    """The uses between all definitions of some files."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.users = cache(self._users)
        self.children = cache(self._children)
        self.ancestors = cache(self._ancestors)
        self.descendants = cache(self._descendants)
        self.mentions = cache(lambda attribute: tuple(self.each_mention(attribute)))
        self.resolve = cache(self._resolve)
        self._words = cache(self._read_words)
        self._open: set[Use] = set()

    def definition(self, path: str, name: str) -> Definition | None:
        """A definition, its parts those of all versions of the file."""
        found = [facts.definitions[name] for facts in self.modules.facts.get(path, ()) if name in facts.rows]
        if len(found) < 2:
            return found[0] if found else None
        parts = {key: part for each in reversed(found) for key, part in each.parts.items()}
        return found[-1]._replace(parts=parts, bases=[*dict.fromkeys(base for each in found for base in each.bases)])

    def kind(self, path: str, name: str) -> str:
        """The kind of a definition; empty where there is none of that name."""
        for facts in self.modules.facts.get(path, ()):
            if name in facts.rows:
                return str(facts.rows[name][0])
        return ""

    # -- uses by name --------------------------------------------------------------------------------------------

    def _users(self, path: str, name: str) -> tuple[Use, ...]:
        """Every part that uses a definition by name, the definition itself left out."""
        found: dict[Use, None] = {}
        for user, local in (
            (path, name),
            *self._bindings.get((path, name), ()),
            *self._bindings.get((path, ANYTHING), ()),
        ):
            words = self._words(user)
            for definition, part, after in (*words.get(local, ()), *words.get(ANYTHING, ())):
                if (user, definition) != (path, name):
                    found[Use(user, definition, part, "" if after == ASKED else after)] = None
        found |= dict.fromkeys((*self._through_modules(path, name), *self._through_others(path, name)))
        for target in ((path, name), (path, ANYTHING)):
            for user, definition, part in self._inner.get(target, ()):
                if (user, definition) != (path, name):
                    found[Use(user, definition, part)] = None
        return tuple(found)

    def _through_modules(self, path: str, name: str) -> Iterator[Use]:
        """The parts that use a definition as ``module.Name`` or ``package.module.Name``, or as ``package.Name``
        where the package takes it from the file."""
        for holder, inside in self._holders(path):
            for user, local in self._bindings.get((holder, None), ()):
                for definition, part, after in self._words(user).get(local, ()):
                    if not after:
                        yield from self._through_value(Use(user, definition, part), holder, (path, name))
                        continue
                    first, rest = _first(after.removeprefix(inside))
                    if after.startswith(inside):
                        leads_here = first in (name, ANYTHING, NAMESPACE)
                    else:
                        leads_here = (path, name) in self.modules.lookup(module_of(holder), first)
                    leads_here = leads_here or (ANYTHING in first and fnmatchcase(name, first))
                    if name == ON_DEMAND and after.startswith(inside):
                        leads_here |= (path, name) in self.modules.lookup(module_of(path), first)
                    if leads_here:
                        yield Use(user, definition, part, rest)
            for user, definition, part in self._inner.get((holder, ANYTHING), ()) if inside else ():
                taken = self._takes(user, definition, part, name)
                if taken and (path, name) in self.modules.lookup(module_of(holder), name):
                    yield Use(user, definition, part)

    def _through_value(self, use: Use, holder: str, target: tuple[str, str]) -> Iterator[Use]:
        """The use of a definition by a part that has its module, or a package that offers it, as a value: it may give
        any name that some code takes. Where that part is a constant, such as ``ops = fast``, which is only asked for
        names, what asks it for this one."""
        name = target[1]
        may_be = use.definition == BODY or self._may_be_taken(name)  # `sys.modules["other"] = fast` offers all
        if not may_be or target not in self.modules.lookup(module_of(holder), name):
            return
        users = None
        if not use.part and self._is_alias(use) and use not in self._open:
            self._open.add(use)  # two modules may be values of each other
            users = self.users(use.path, use.definition)
            self._open.discard(use)
        if users is None or not all(each.after[:1].isidentifier() for each in users):
            yield use
            return
        for each in users:
            words = {word.partition("[")[0] for word in each.after.split(".")}
            if not words.isdisjoint((name, NAMESPACE)) or ANYTHING in each.after:
                yield each

    def _is_alias(self, use: Use) -> bool:
        """Whether a part is that of a constant which is made of modules alone."""
        found = self.definition(use.path, use.definition)
        if found is None or found.kind != "constant":
            return False
        bare = [word for word in found.parts[use.part].names if word.isidentifier()]
        return all(target[1] is None for word in bare for target in self.modules.local(use.path, word))

    def _may_be_taken(self, name: str) -> bool:
        """Whether any code takes an attribute of that name, or one that is chosen at run time."""
        return not self._taking.keys().isdisjoint((name, ANYTHING)) or any(
            fnmatchcase(name, glob) for glob in self._globs
        )

    def _through_others(self, path: str, name: str) -> Iterator[Use]:
        """The parts that use a definition as ``other.Name`` where another file takes it from its own."""
        for taker, taken in self._bindings.get((path, name), ()):
            for holder, inside in self._holders(taker):
                for user, local in self._bindings.get((holder, None), ()):
                    for definition, part, after in self._words(user).get(local, ()):
                        first, rest = _first(after.removeprefix(inside))
                        if after.startswith(inside) and first == taken:
                            yield Use(user, definition, part, rest)

    def _takes(self, path: str, definition: str, part: str, attribute: str) -> bool:
        """Whether a part takes an attribute of some object."""
        versions = (facts.rows.get(definition) for facts in self.modules.facts.get(path, ()))
        return any(row is not None and part in row[3] and attribute in row[3][part][2] for row in versions)

    def users_in(self, path: str, local: str) -> Iterator[Use]:
        """The parts of one file that use a name of its level."""
        return (Use(path, definition, part, after) for definition, part, after in self._words(path).get(local, ()))

    def _holders(self, path: str) -> Iterator[tuple[str, str]]:
        """The module of a file and the packages around it, each with what leads from there to the module."""
        module = module_of(path)
        inside = ""
        while module and module != ".":
            yield self.modules.path(module) or module, inside
            module, _, name = module.rpartition("/")
            inside = f"{name}.{inside}"

    @cached_property
    def _bindings(self) -> Mapping[Target, Sequence[tuple[str, str]]]:
        """Target to the files that bind it by an import of module level, and under which name."""
        found: dict[Target, list[tuple[str, str]]] = {}
        bound: dict[tuple[str, int, str, str | None], tuple[Target, ...]] = {}
        for path, versions in self.modules.facts.items():
            folder = path.rpartition("/")[0]
            test = path.startswith("tests/")
            for row in dict.fromkeys(row for facts in versions for row in facts.imports):
                if test and row.module.startswith("transformers"):
                    continue  # what a test uses of the models is found by its words alone
                key = (folder, *row[1:])
                if key not in bound:
                    bound[key] = self.modules.bound(path, row)
                for target in bound[key]:
                    found.setdefault(target, []).append((path, row.local))
            if path.endswith("__init__.py"):
                continue  # it offers what it imports with a star, and does not use it
            for level, starred in dict.fromkeys(star for facts in versions for star in facts.stars):
                source = self.modules.module(path, level, starred)
                for name, targets in self.modules.exported(source).items() if source else ():
                    for target in targets:
                        found.setdefault(target, []).append((path, name))
        return found

    @cached_property
    def _inner(self) -> Mapping[Target, Sequence[tuple[str, str, str]]]:
        """Target to the definitions and parts that import it in a function."""
        found: dict[Target, list[tuple[str, str, str]]] = {}
        for path, versions in self.modules.facts.items():
            for facts in versions:
                for row, definition, part in facts.inner:
                    targets: Sequence[Target]
                    module = self.modules.module(path, row.level, row.module)
                    if ANYTHING in row.module:
                        targets = self.modules.like(path, row.level, row.module)
                    elif row.name == ANYTHING and module:
                        targets = [(self.modules.path(module), ANYTHING)]
                    else:
                        targets = self.modules.bound(path, row)
                    for target in targets:
                        # A module that is bound in a function: any of its names may be used there.
                        name = target[1] if target[1] is not None else ANYTHING
                        found.setdefault((target[0], name), []).append((path, definition, part))
        return found

    def _read_words(self, path: str) -> Mapping[str, Sequence[tuple[str, str, str]]]:
        """First word of every name that a file uses to definition, part and what follows the word."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for facts in self.modules.facts.get(path, ()):
            for name, row in facts.rows.items():
                for key, part in row[3].items():
                    for word in part[0]:
                        first, rest = _first(word)
                        found.setdefault(first, []).append((name, key, rest))
        return found

    # -- classes -------------------------------------------------------------------------------------------------

    def _resolve(self, path: str, dotted: str) -> tuple[Target, ...]:
        """The definitions that a dotted name of a file leads to."""
        first, rest = _first(dotted)
        targets = self.modules.local(path, first)
        while rest:
            first, rest = _first(rest)
            # A member of a definition belongs to it; a name of a module is looked up there.
            targets = tuple(
                found
                for target in targets
                for found in (self.modules.local(target[0], first) if target[1] is None else [target])
            )
        return targets

    @cached_property
    def _bases(self) -> Mapping[tuple[str, str], Sequence[Target]]:
        return {
            (path, name): [target for base in row[2] for target in self.resolve(path, base)]
            for path, versions in self.modules.facts.items()
            for facts in versions
            for name, row in facts.rows.items()
            if row[0] == "class" and row[2]
        }

    @cached_property
    def _derived(self) -> Mapping[Target, Sequence[tuple[str, str]]]:
        found: dict[Target, list[tuple[str, str]]] = {}
        for derived, bases in self._bases.items():
            for base in bases:
                found.setdefault(base, []).append(derived)
        return found

    def _children(self, path: str, name: str) -> Sequence[tuple[str, str]]:
        return self._derived.get((path, name), ())

    def _descendants(self, path: str, name: str) -> frozenset[Target]:
        """A class and all that derive from it."""
        found: set[Target] = {(path, name)}
        waiting = [(path, name)]
        while waiting:
            for child in self.children(*waiting.pop()):
                if child not in found:
                    found.add(child)
                    waiting.append(child)
        return frozenset(found)

    def _ancestors(self, path: str, name: str) -> frozenset[Target]:
        """A class and all of the repository that it derives from."""
        found: set[Target] = {(path, name)}
        waiting = [(path, name)]
        while waiting:
            for base in self._bases.get(waiting.pop(), ()):
                if base not in found and base[1] is not None:
                    found.add(base)
                    waiting.append((base[0], base[1]))
        return frozenset(found)

    # -- attributes ----------------------------------------------------------------------------------------------

    def each_mention(self, attribute: str) -> Iterator[Mention]:
        """Every part that takes an attribute of this name, by a glob too."""
        wanted = {attribute, *(glob for glob in self._globs if fnmatchcase(attribute, glob))}
        for position in sorted({each for word in wanted for each in self._taking.get(word, ())}):
            path, facts = self._versions[position]
            for name, row in facts.rows.items():
                for key, part in row[3].items():
                    yield from _mentions(Mention(path, name, key, False, ""), part, wanted)

    @cached_property
    def _versions(self) -> Sequence[tuple[str, Facts]]:
        return [(path, facts) for path, versions in self.modules.facts.items() for facts in versions]

    @cached_property
    def _taking(self) -> Mapping[str, Sequence[int]]:
        """Attribute to the files that take it, as places in `_versions`."""
        found: dict[str, list[int]] = {}
        for position, (_, facts) in enumerate(self._versions):
            for word in facts.attributes:
                found.setdefault(word, []).append(position)
        return found

    @cached_property
    def _globs(self) -> Sequence[str]:
        return sorted(word for word in self._taking if "*" in word and word.strip("*"))

    # -- tables --------------------------------------------------------------------------------------------------

    @cached_property
    def tables(self) -> Mapping[str, Sequence[Use]]:
        """Word to the entries of tables whose value is, or holds, that word as a string."""
        found: dict[str, list[Use]] = {}
        for path, versions in self.modules.facts.items():
            for facts in versions:
                for name, row in facts.rows.items():
                    if row[0] == "constant":
                        for key, part in row[3].items():
                            if key:
                                for word in part[3]:
                                    found.setdefault(word, []).append(Use(path, name, key))
        return found


def _mentions(at: Mention, part: Sequence[Sequence[str]], wanted: set[str]) -> Iterator[Mention]:
    if not wanted.isdisjoint(part[1]):
        yield at._replace(own=True)
    if not wanted.isdisjoint(part[2]):
        yield at
    for word in part[0]:
        root, rest = _first(word) if any(each in word for each in wanted) else ("", "")
        while rest:
            attribute, rest = _first(rest)
            if attribute in wanted:
                yield at._replace(root=root)


def _first(word: str) -> tuple[str, str]:
    """Split ``a.b["c"]`` into ``a`` and ``b["c"]``, ``a["c"].d`` into ``a`` and ``["c"].d``."""
    if word.startswith("["):
        end = word.find("]")
        return word[: end + 1], word[end + 1 :].removeprefix(".")
    for position, character in enumerate(word):
        if character == ".":
            return word[:position], word[position + 1 :]
        if character == "[":
            return word[:position], word[position:]
    return word, ""
