"""Where a name leads to through imports, and who uses what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from hfexport_bot.changes.facts import read_facts
from hfexport_bot.changes.graph import Graph, Use
from hfexport_bot.changes.modules import ANYTHING, Modules, Target, module_of
from hfexport_bot.changes.reading import Sides
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.schema import Layout

LAZY = "import sys\nsys.modules[__name__] = _LazyModule(__name__, define_import_structure(__file__))\n"


def modules(files: Mapping[str, str], roots: Sequence[str] | None = None) -> Modules:
    return Modules({path: [read_facts(text.encode())] for path, text in files.items()}, sorted(files), roots)


def test_modules_are_named_by_their_paths() -> None:
    assert [module_of(path) for path in ("a/b.py", "a/__init__.py", "__init__.py", "a.py")] == ["a/b", "a", ".", "a"]


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        ({"p/a.py": "def x(): pass"}, "x", [("p/a.py", "x")]),
        ({"p/a.py": "from .b import y as x", "p/b.py": "y = 1"}, "x", [("p/b.py", "y")]),
        ({"p/a.py": "from . import b", "p/b.py": "y = 1"}, "b", [("p/b.py", None)]),
        ({"p/a.py": "from .b import *", "p/b.py": "x = 1"}, "x", [("p/b.py", "x")]),
        ({"p/a.py": "from .b import *", "p/b.py": "x = 1\n__all__ = ['y']"}, "x", [("p/a.py", ANYTHING)]),
        ({"p/a.py": "from .b import *", "p/b.py": "_x = 1"}, "_x", [("p/a.py", ANYTHING)]),
        ({"p/a.py": "from elsewhere import x"}, "x", []),
        ({"p/a.py": "y = 1"}, "x", [("p/a.py", ANYTHING)]),
        ({"p/a.py": "try:\n    from .b import x\nexcept ImportError:\n    x = None", "p/b.py": "x = 1"}, "x", None),
        (
            {
                "p/a.py": "if y:\n    from .b import x\nelse:\n    from .c import x",
                "p/b.py": "x = 1",
                "p/c.py": "x = 2",
            },
            "x",
            [("p/b.py", "x"), ("p/c.py", "x")],
        ),
        ({"p/a.py": "from .b import x", "p/b.py": "from .a import x"}, "x", []),
        ({"p/a.py": "from .b import *", "p/b.py": "from .a import *\nx = 1"}, "x", [("p/b.py", "x")]),
        ({"p/a.py": "def ("}, "x", [("p/a.py", ANYTHING)]),
    ],
)
def test_a_name_leads_to_its_definition(files: dict[str, str], name: str, expected: list[Target] | None) -> None:
    found = list(modules(files).local("p/a.py", name))
    assert found == (expected if expected is not None else [("p/a.py", "x"), ("p/b.py", "x")])


def test_a_lazy_package_offers_what_its_files_offer() -> None:
    files = {"p/__init__.py": LAZY, "p/b.py": "class B: pass\nclass C: pass\n__all__ = ['B']"}
    found = modules(files)
    assert found.lookup("p", "B") == (("p/b.py", "B"),)
    assert found.lookup("p", "C") == (("p/__init__.py", ANYTHING),)
    assert found.lookup("p", "b") == (("p/b.py", None),)


def test_a_written_out_structure_leads_to_its_files() -> None:
    files = {"p/__init__.py": "_import_structure = {'q.utils': ['A']}", "p/q/__init__.py": "", "p/q/utils.py": "A = 1"}
    assert modules(files).lookup("p", "A") == (("p/q/utils.py", "A"),)


def test_absolute_imports_start_from_the_roots_or_any_folder_above() -> None:
    files = {"src/p/a.py": "x = 1", "tools/t.py": ""}
    assert modules(files, ("src",)).module("tools/t.py", 0, "p.a") == "src/p/a"
    assert modules(files).module("tools/t.py", 0, "p.a") is None
    assert modules(files).module("src/p/b.py", 0, "p.a") == "src/p/a"
    assert modules(files, ("src",)).module("src/p/a.py", 1, "") == "src/p"
    assert modules(files, ("src",)).module("tools/t.py", 0, "os") is None


def users(files: Mapping[str, str], path: str, name: str) -> set[tuple[str, str]]:
    return {(use.path, use.definition) for use in Graph(modules(files)).users(path, name)}


@pytest.mark.parametrize(
    "user",
    [
        "from .b import x\ndef f(): return x",
        "from .b import x as z\ndef f(): return z",
        "from . import b\ndef f(): return b.x",
        "import p.b\ndef f(): return p.b.x",
        "import p.b as z\ndef f(): return z.x",
        "from .b import *\ndef f(): return x",
        "from .c import x\ndef f(): return x",
        "def f():\n    from .b import x\n    return x",
        "def f():\n    from . import b\n    return b.x",
        "def f():\n    from .b import *",
        "from . import b\ndef f(name): return getattr(b, name)",
        "if fast():\n    from .b import x\ndef f(): return x",
    ],
)
def test_whoever_uses_a_definition_is_found(user: str) -> None:
    files = {"p/__init__.py": "", "p/a.py": user, "p/b.py": "x = 1\ny = 2", "p/c.py": "from .b import x"}
    assert ("p/a.py", "f") in users(files, "p/b.py", "x")


@pytest.mark.parametrize(
    "user",
    [
        "from .b import x\ndef f(): return y",
        "from .b import x\ndef f(x): return x",
        "from . import b\ndef f(): return b.y",
        "from .c import x\ndef f(): return x",
        "def f():\n    from .b import y\n    return y",
    ],
)
def test_whoever_uses_another_definition_is_not(user: str) -> None:
    files = {"p/__init__.py": "", "p/a.py": user, "p/b.py": "x = 1\ny = 2", "p/c.py": "x = 1"}
    assert users(files, "p/b.py", "x") == set()


def test_what_follows_a_name_is_kept_with_its_use() -> None:
    graph = Graph(modules({"a.py": "from b import T\ndef f(): return T['k'].y", "b.py": "T = {'k': 1}"}))
    assert graph.users("b.py", "T") == (Use("a.py", "f", "", "['k'].y"),)


def test_classes_know_what_derives_from_them_through_files_and_cycles() -> None:
    files = {
        "a.py": "class A: pass\nclass Loop(Loop2): pass\nclass Loop2(Loop): pass",
        "b.py": "import a\nclass B(a.A): pass",
        "c.py": "from b import B\nclass C(B): pass\nclass D(C[int]): pass",
    }
    graph = Graph(modules(files))
    assert graph.descendants("a.py", "A") == {("a.py", "A"), ("b.py", "B"), ("c.py", "C"), ("c.py", "D")}
    assert graph.ancestors("c.py", "D") == {("a.py", "A"), ("b.py", "B"), ("c.py", "C"), ("c.py", "D")}
    assert graph.descendants("a.py", "Loop") == {("a.py", "Loop"), ("a.py", "Loop2")}


def test_an_attribute_is_found_by_name_and_by_glob() -> None:
    source = "class A:\n    def f(self, x): return self.go(x.go)\n    def g(self, k): return getattr(self, f'g{k}')()\n"
    found = {(each.part, each.own) for each in Graph(modules({"a.py": source})).mentions("go")}
    assert found == {("f", True), ("f", False), ("g", True)}


def test_files_come_in_one_order_whatever_the_seed_of_hashes() -> None:
    tree = MappingTree({f"zoo/part_{number}.py": "" for number in range(40)})
    facts = Sides(tree, tree, Layout.MODELING, []).modules().facts
    assert list(facts) == sorted(facts)
    assert len(facts) == 40
