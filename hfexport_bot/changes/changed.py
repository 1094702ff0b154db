"""What a change is made of: the changed symbols of its files that may count, and what is left out before any use is
followed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import PurePosixPath

from hfexport_bot.changes import policy
from hfexport_bot.changes.effects import Effects
from hfexport_bot.changes.git import FileChange
from hfexport_bot.changes.loading import Loading
from hfexport_bot.changes.modeling import TooLargeError
from hfexport_bot.changes.modules import Modules
from hfexport_bot.changes.order import REORDERED
from hfexport_bot.changes.reading import Sides
from hfexport_bot.changes.selection import (
    NOT_EXPORTED,
    ONLY_CHECKS,
    ONLY_IMPORTS,
    ONLY_MODE,
    ONLY_MOVED,
    ONLY_ORDER,
    ONLY_TEXT,
    ONLY_VERSION,
)
from hfexport_bot.changes.symbols import ASIDE, Compared, Symbol
from hfexport_bot.changes.units import IMPORT, WHOLE
from hfexport_bot.schema import Layout, NotRun

#: Changed symbols of one file that are named one by one when none of them is run.
_NAMED = 20


class Changed:
    """Reads the changed files.

    Attributes:
        failing: the files that can no longer be imported by what they import.
        not_run: what is left out, and why.
    """

    def __init__(
        self,
        changes: Sequence[FileChange],
        sides: Sides,
        modules: Modules,
        compared: Mapping[str, Compared],
        loading: Loading,
        effects: Effects,
        layout: Layout,
        hooks: Collection[str],
        reading: Mapping[str, Sequence[Symbol]],
    ) -> None:
        self._reading = reading
        self._changes = changes
        self._sides = sides
        self._modules = modules
        self._compared = compared
        self._loading = loading
        self._effects = effects
        self._loads = cache(self._find_loads)
        self._layout = layout
        #: Files that are told of elsewhere.
        moved = [each for each in changes if each.old and each.new and each.old != each.new]
        self._elsewhere = {*hooks, *(path for each in moved for path in (each.old, each.new))}
        self.failing: set[str] = set()
        self.not_run: list[NotRun] = []

    def symbols(self) -> list[Symbol]:
        """The changed symbols of all files that may count."""
        failing = [*self._sides.failing(self._modules).symbols((each.old, each.new) for each in self._changes)]
        self.failing = {symbol.path for symbol in failing}
        reading = (symbol for symbols in self._reading.values() for symbol in symbols)
        return [*(symbol for change in self._changes for symbol in self._of_file(change)), *failing, *reading]

    def _of_file(self, change: FileChange) -> Iterator[Symbol]:
        compared = self._compared[change.path]
        if change.old not in self._sides.blobs[0] and change.new not in self._sides.blobs[1]:
            self.leave_out(change.path, "a submodule, or a link that leads to no file of the repository")
        elif compared.both_broken and compared.error is not None and not isinstance(compared.error, TooLargeError):
            self.leave_out(change.path, compared.error.told(" on both sides"))
        elif compared.error is not None and change.old is None:
            self.leave_out(change.path, compared.error.told())
        elif compared.error is not None:
            yield from compared.symbols
            yield Symbol(change.path, IMPORT, WHOLE, f"cannot be read: {compared.error.told()}")
        elif not (compared.symbols or self._loads(change)) and self._stays(change):
            same = self._sides.blobs[0].get(change.path) == self._sides.blobs[1].get(change.path)
            self.leave_out(change.path, ONLY_MODE if same else ONLY_MOVED if compared.moved else ONLY_TEXT)
        elif PurePosixPath(change.path).name.startswith("modular_") and self._layout is Layout.TRANSFORMERS:
            self._modular(change)
        else:
            yield from filter(self._acts, self._that_count(change))
            if compared.acts:
                yield Symbol(change.path, IMPORT)
            if change.old and change.new and change.old != change.new:
                # Whoever used the old path finds nothing there.
                for symbol in compared.symbols:
                    yield Symbol(change.old, symbol.definition, symbol.part, symbol.how)
                names = self._modules.facts.get(change.old, ())
                for name in sorted({name for facts in names for name in facts.rows}):
                    yield Symbol(change.old, name, "", "removed")

    def _that_count(self, change: FileChange) -> Sequence[Symbol]:
        """The changed symbols of a file, without names that its imports bind and nobody uses or has otherwise now."""
        path = change.path
        offered = (Symbol(path, name, IMPORT, how) for name, how in self._sides.offered_anew(change))
        symbols = [*self._compared[path].symbols, *offered]
        found = [each for each in symbols if each.part != IMPORT or any(self._loading.uses(path, each.definition))]
        found += self._loads(change)
        if not found and symbols and path not in self.failing:
            self.leave_out(path, ONLY_IMPORTS)
        return found

    def _stays(self, change: FileChange) -> bool:
        return change.old == change.new and not self._sides.offered_anew(change)

    def _find_loads(self, change: FileChange) -> Sequence[Symbol]:
        """What a file loads otherwise than before, of what does something as it is loaded."""
        if change.old != change.new:
            return ()
        sides = (self._sides.base, self._sides.head)
        return tuple(self._effects.symbols(change.path, sides, self._compared[change.path]))

    def _acts(self, symbol: Symbol) -> bool:
        """Whether a symbol changed otherwise than by the order of entries that are looked up by key, and not behind the
        boundary alone; says so if not."""
        if symbol.how == REORDERED and symbol.definition in policy.KEYED_BY_CONFIG:
            reason = ONLY_ORDER
        elif symbol.how == ASIDE:
            reason = NOT_EXPORTED
        else:
            return True
        self.not_run.append(NotRun(kind="symbol", name=f"{symbol.path}:{symbol.name}", reason=reason))
        return False

    def _modular(self, change: FileChange) -> None:
        """A modular file is run as what it generates: nothing of it that did not change is new."""
        folder, _, name = change.path.rpartition("/")
        made = self._made_of(change.path)
        changed = {each.path for each in self._changes}
        others = [each for each in self._changes if each.path.rpartition("/")[0] == folder]
        if not changed.intersection(made) and all(self._sides.generated(each) != name for each in others):
            self.leave_out(change.path, _only_modular(made))

    def _made_of(self, modular: str) -> list[str]:
        """The files that are generated from a modular file."""
        folder, _, name = modular.rpartition("/")
        return [
            path
            for path in self._sides.head
            if path.rpartition("/")[0] == folder and self._sides.head[path].generated == name
        ]

    def tell_unused(self, unused: Mapping[str, Sequence[Symbol]]) -> None:
        """Name the changed symbols of each file that lead to no class that is run; a file where none of it does."""
        left = {symbol for symbols in unused.values() for symbol in symbols}
        for path, symbols in self._reading.items():
            if symbols and left.issuperset(symbols):
                self.leave_out(path, NOT_EXPORTED)
        reading = {symbol for symbols in self._reading.values() for symbol in symbols}
        for path, others in unused.items():
            symbols = [symbol for symbol in others if symbol not in reading]
            if path in self._elsewhere or not symbols:
                continue
            whys = {self._why_unused(symbol) for symbol in symbols}
            every = self._compared[path].symbols if path in self._compared else ()
            if path in self._compared and self._compared[path].error and len(symbols) <= len(every):
                continue  # others of it lead to classes
            whole = len(symbols) == len(every) and all(symbol.how != "changed" for symbol in symbols)
            if len(whys) == 1 and (whole or whys != {NOT_EXPORTED} or len(symbols) > _NAMED):
                self.leave_out(path, *whys)
            else:
                for symbol in symbols:
                    reason = self._why_unused(symbol)
                    self.not_run.append(NotRun(kind="symbol", name=f"{path}:{symbol.name}", reason=reason))

    def _why_unused(self, symbol: Symbol) -> str:
        error = self._compared[symbol.path].error if symbol.path in self._compared else None
        if error is not None:
            return f"{error.told()}; {NOT_EXPORTED}"
        if self._layout is not Layout.TRANSFORMERS:
            made = self._made_of(symbol.path)
            return NOT_EXPORTED if not made or set(made) & {*self._compared} else _only_modular(made)
        if policy.is_version(symbol.path, symbol.definition):
            return ONLY_VERSION
        if policy.only_documents(symbol.path, symbol.definition):
            return ONLY_TEXT
        return ONLY_CHECKS if symbol.path.startswith(policy.TESTS) else NOT_EXPORTED

    def leave_out(self, path: str, reason: str) -> None:
        """Tell that nothing runs by a file."""
        self.not_run.append(NotRun(kind="file", name=path, reason=reason))


def _only_modular(made: Sequence[str]) -> str:
    """That a modular file changed and what is generated from it did not."""
    names = " and ".join(sorted(PurePosixPath(path).name for path in made)) or "what it generates"
    return f"only the modular file changed; {names} did not, so that the code that runs is the same"
