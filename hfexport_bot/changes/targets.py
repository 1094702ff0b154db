"""From what a user names (``bert``, ``llama/LlamaForCausalLM``, a modeling file's path) to model classes."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from hfexport_bot.changes.inheritance import Inheritance
from hfexport_bot.changes.layout import MODELS_FOLDER, ModelFile, has_odd_name, is_modeling_file, model_file
from hfexport_bot.changes.modeling import (
    Elsewhere,
    SourceError,
    generating_classes,
    model_classes,
    nowhere,
    parse,
    plain_modules,
    public_model_classes,
    without_forward,
)
from hfexport_bot.changes.selection import AffectedModule
from hfexport_bot.changes.tree import Tree
from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Backend, Layout, Shapes, Task

_WANTED = "a model class derives from transformers' PreTrainedModel and has a forward"
_CLASS = re.compile(rb"^class (\w+)", re.MULTILINE)
#: Why the models that a user names are run.
ASKED_FOR = "asked for"
#: Why those of a sweep are run.
EVERY_MODEL = "every model"
#: Most names that a message lists.
_NAMED = 3


def resolve_targets(names: Sequence[str], tree: Tree, layout: Layout) -> tuple[AffectedModule, ...]:
    """Find the model classes of each name, in the order they were named, each once.

    A name is a model (the public classes of its modeling files), ``MODEL/CLASS``, a modeling file's path in
    the tree, or ``PATH:CLASS``. Raises `UsageError` with the nearest names when there is no such model or class.
    """
    catalogue = _catalogue(tree, layout)
    wanted: dict[ModelFile, list[str]] = {}
    for name, (files, class_name) in _find_all(names, tree, layout, catalogue):
        found = {file: _classes(file, tree, layout, class_name) for file in files}
        if class_name and not any(class_name in classes for classes in found.values()):
            known = [each for classes in found.values() for each in classes]
            lacking = _lacking(files, tree, layout).of(class_name)
            said = f": {lacking}" if lacking.names else _nearest(class_name, known)
            raise UsageError(f"{name}: no model class {class_name}{said}")
        if not any(found.values()):
            paths = ", ".join(file.path for file in files)
            raise UsageError(f"{name}: no model class in {paths}: {_lacking(files, tree, layout)}")
        for file, classes in found.items():
            chosen = [each for each in classes if class_name in (None, each)]
            kept = wanted.setdefault(file, [])
            kept.extend(each for each in chosen if each not in kept)
    return tuple(
        AffectedModule(
            None, file, (), tuple(classes), reason=ASKED_FOR, head_generating=_generating(file, tree, layout, classes)
        )
        for file, classes in wanted.items()
        if classes
    )


def resolve_on_both(names: Sequence[str], base: Tree, head: Tree, layout: Layout) -> tuple[AffectedModule, ...]:
    """The model classes that ``names`` has on head, as by `resolve_targets`, each with base's where base has it."""

    def with_base(module: AffectedModule) -> AffectedModule:
        file = module.head
        if file is None or (source := base.read(file.path)) is None:
            return module
        try:
            there = model_classes(parse(source), _elsewhere(file, base, layout))
        except SourceError:
            there = module.head_classes  # their cases end as errors in stage `source`
        classes = tuple(name for name in module.head_classes if name in there)
        return replace(
            module, base=file, base_classes=classes, base_generating=_generating(file, base, layout, classes)
        )

    return tuple(map(with_base, resolve_targets(names, head, layout)))


def every_model(tree: Tree, layout: Layout) -> tuple[tuple[AffectedModule, ...], tuple[str, ...]]:
    """The public model classes of every modeling file that Python can read, in the order of their paths; and a line
    on each file that is no Python, or whose classes are no models though they have a forward.

    Raises `UsageError` where there is no model class at all.
    """
    files = _files(tree, layout)
    modules, notes = [], []
    for file in files:
        try:
            classes = public_model_classes(parse(tree.read(file.path) or b""), _elsewhere(file, tree, layout))
        except SourceError as error:
            notes.append(f"{file.path} was left out: {error.told()}")
            continue
        generating = _generating(file, tree, layout, classes)
        if classes:
            modules.append(AffectedModule(None, file, (), classes, reason=EVERY_MODEL, head_generating=generating))
        lacking = _lacking([file], tree, layout)
        if lacking.mute:
            notes.append(f"{file.path}: left out for want of a forward: {_some(lacking.mute)}")
        elif lacking.names and not classes:
            notes.append(f"{file.path} was left out: {lacking}")
    if not modules:
        found = notes[:_NAMED] or [_WANTED if files else "no file is called modeling_*.py"]
        raise UsageError(f"no model class to try: {'; '.join(found)}")
    return tuple(modules), tuple(notes)


def why_no_model(trees: Iterable[Tree], layout: Layout) -> str:
    """Why none of some trees has a public model class; empty where one has."""
    problem = ""
    for tree in trees:
        if _has_models(_files(tree, layout), tree, layout):  # which most often the first file tells
            return ""
        try:
            every_model(tree, layout)
            return ""
        except UsageError as error:
            problem = problem or str(error)
    return problem


def unknown_names(names: Iterable[str], tree: Tree, layout: Layout) -> tuple[str, ...]:
    """Those of ``names`` that neither a model nor a class of a modeling file has, each with the nearest that has."""
    catalogue = _catalogue(tree, layout)
    paths = {file.path for files in catalogue.values() for file in files}
    classes = (found.decode() for path in paths for found in _CLASS.findall(tree.read(path) or b""))
    known = {file.model for files in catalogue.values() for file in files} | set(classes)
    return tuple(f"{name}{_nearest(name, known)}" for name in names if name not in known)


def globs_of_no_class(globs: Iterable[str], trees: Iterable[Tree], layout: Layout, example: str = "") -> dict[str, str]:
    """Those of some globs over case ids that match none of any class in a modeling file of some trees, each with what
    it may have meant: an id with a class that it names, or else ``example``, or the id of some model class, if there is
    one."""
    left = list(dict.fromkeys(globs))
    owners: dict[tuple[str, str], tuple[ModelFile, Tree]] = {}
    for tree in trees if left else ():
        for file in _files(tree, layout):
            # In a checkout, a model's name tells which of its hundreds of files to read.
            if layout is not Layout.TRANSFORMERS or any(_may_be_of(glob, file.model) for glob in left):
                names = _CLASS.findall(tree.read(file.path) or b"")
                owners |= dict.fromkeys(((file.model, name.decode()) for name in names), (file, tree))
        left = [glob for glob in left if not any(_covers(glob, *owner) for owner in owners)]

    def is_model(owner: tuple[str, str]) -> bool:
        try:
            return owner[1] in _classes(*owners[owner], layout, None)
        except UsageError:  # a syntax error
            return False

    def meant(glob: str) -> str:
        named = next((owner for owner in owners if owner[1] in glob.split("/") and is_model(owner)), None)
        if named is not None:
            return f"did you mean `{'/'.join(named)}/*`?"
        some = next(filter(is_model, owners), None)
        found = example or (some and f"{'/'.join(some)}/{Backend.ONNX}/{Shapes.DYNAMIC}/{Task.FORWARD}")
        return f"ids are like `{found}`" if found else ""

    return {glob: meant(glob) for glob in left}


def _may_be_of(glob: str, model: str) -> bool:
    first, slash, _ = glob.partition("/")
    return not slash or fnmatchcase(model, first)


def _covers(glob: str, model: str, name: str) -> bool:
    plain = re.sub(r"[+@][^/]*$", "*", glob)  # whichever variant and engine
    kinds = ("/".join(kind) for kind in itertools.product(Backend, Shapes, Task))
    return any(fnmatchcase(f"{model}/{name}/{kind}", plain) for kind in kinds)


def _catalogue(tree: Tree, layout: Layout) -> dict[str, list[ModelFile]]:
    """Every name a model may be called by, and its modeling files. In a repository with its own models these
    are the path without ``.py``, ``modeling_x`` and ``x``."""
    names: dict[str, list[ModelFile]] = {}
    for path in tree.files(MODELS_FOLDER.get(layout, "")):
        if is_modeling_file(path, layout) and not has_odd_name(path):
            file = model_file(path, layout)
            stem = PurePosixPath(path).stem
            short = {stem, stem.removeprefix("modeling_")} if layout is Layout.MODELING else set()
            for name in {file.model} | short:
                names.setdefault(name, []).append(file)
    return names


def _files(tree: Tree, layout: Layout) -> list[ModelFile]:
    """All modeling files, in the order of their paths."""
    files = {file for found in _catalogue(tree, layout).values() for file in found}
    return sorted(files, key=lambda each: each.path)


def _find_all(
    names: Sequence[str], tree: Tree, layout: Layout, catalogue: Mapping[str, list[ModelFile]]
) -> list[tuple[str, tuple[list[ModelFile], str | None]]]:
    """The files of every name. Raises `UsageError` with all that are none, not only the first."""
    found, wrong = [], list[str]()
    for name in names:
        try:
            found.append((name, _find(name, tree, layout, catalogue)))
        except UsageError as error:
            wrong.append(str(error))
    if wrong:
        raise UsageError("; ".join(dict.fromkeys(wrong)))
    return found


def _find(
    name: str, tree: Tree, layout: Layout, catalogue: Mapping[str, list[ModelFile]]
) -> tuple[list[ModelFile], str | None]:
    name = name.rstrip("/")  # as a shell completes a folder's name
    path, _, class_name = name.partition(":")
    if path.endswith(".py"):
        if tree.read(path) is None or not is_modeling_file(path, layout):
            known = sorted({file.path for files in catalogue.values() for file in files})
            raise UsageError(f"{path} is no modeling file of this tree{_nearest(path, known)}")
        if has_odd_name(path):
            raise UsageError(f"{path}: a path may only have letters, digits and _ . - /; rename it")
        return [model_file(path, layout)], class_name or None
    if name in catalogue:
        return catalogue[name], None
    model, _, class_name = name.rpartition("/")
    if model in catalogue:
        return catalogue[model], class_name
    homes = [
        f"{file.model}/{class_name}"
        for file in _files(tree, layout)
        if class_name[:1].isupper() and class_name.encode() in _CLASS.findall(tree.read(file.path) or b"")
    ]
    if homes:
        raise UsageError(f"unknown model {model or name!r}; did you mean {' or '.join(homes[:_NAMED])}?")
    nearest = _nearest(model or name, catalogue, lambda near: _has_models(catalogue[near], tree, layout))
    raise UsageError(f"unknown model {model or name!r}{nearest}")


def _classes(file: ModelFile, tree: Tree, layout: Layout, class_name: str | None) -> tuple[str, ...]:
    try:
        module = parse(tree.read(file.path) or b"")
        find = model_classes if class_name else public_model_classes
        return find(module, _elsewhere(file, tree, layout))
    except SourceError as error:
        if class_name:
            return (class_name,)  # its case runs, and ends as an error in stage `source`
        raise UsageError(f"{file.path}: {error.told()}") from None


def _elsewhere(file: ModelFile, tree: Tree, layout: Layout) -> Elsewhere:
    """Where the bases of a repository's own models are found; those of transformers are told by their names."""
    return Inheritance(tree).of(file.path) if layout is Layout.MODELING else nowhere


def _generating(file: ModelFile, tree: Tree, layout: Layout, classes: Sequence[str]) -> tuple[str, ...]:
    try:
        generating = generating_classes(parse(tree.read(file.path) or b""), _elsewhere(file, tree, layout))
    except SourceError:
        return ()
    return tuple(name for name in classes if name in generating)


@dataclass(frozen=True)
class _Lacking:
    """Classes that are nearly models: ``plain`` ones would derive from the right base, ``mute`` ones have a forward."""

    plain: tuple[str, ...] = ()
    mute: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return self.plain + self.mute

    def of(self, name: str) -> _Lacking:
        """The same of one class."""
        return _Lacking(*(tuple(each for each in names if each == name) for names in (self.plain, self.mute)))

    def __str__(self) -> str:
        """What a model class is, and what these lack of it."""
        said = [_WANTED]
        if self.plain:
            verb = "derives" if len(self.plain) == 1 else "derive"
            said.append(f"{_some(self.plain)} {verb} from torch.nn.Module only, which no case function makes up for")
        if self.mute:
            said.append(f"{_some(self.mute)} {'has' if len(self.mute) == 1 else 'have'} no forward")
        return "; ".join(said)


def _lacking(files: Iterable[ModelFile], tree: Tree, layout: Layout) -> _Lacking:
    read = [(parse(tree.read(file.path) or b""), _elsewhere(file, tree, layout)) for file in files]
    plain, mute = ([name for each in read for name in find(*each)] for find in (plain_modules, without_forward))
    return _Lacking(tuple(plain), tuple(mute))


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")


def _has_models(files: Iterable[ModelFile], tree: Tree, layout: Layout) -> bool:
    try:
        return any(_classes(file, tree, layout, None) for file in files)
    except UsageError:  # no Python
        return False


def _nearest(name: str, known: Iterable[str], accepted: Callable[[str], bool] = lambda near: True) -> str:
    """The few ``known`` names nearest to ``name`` that would be ``accepted``, as the end of a message."""
    known = sorted(set(known))
    inside = [each for each in known if each.startswith(f"{name}/")]  # it is a folder of models
    close = inside or difflib.get_close_matches(name, known, n=3 * _NAMED, cutoff=0.5)
    told = list(itertools.islice(filter(accepted, close), _NAMED))
    return f"; did you mean {' or '.join(told)}?" if told else ""
