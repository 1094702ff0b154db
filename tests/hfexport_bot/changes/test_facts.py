"""What one file says: its units, the uses of each, its imports."""

from __future__ import annotations

import ast

import pytest

from hfexport_bot.changes import units
from hfexport_bot.changes.facts import Facts, read_facts
from hfexport_bot.changes.imports import Import
from hfexport_bot.changes.modeling import MAX_BYTES, parse
from hfexport_bot.changes.symbols import Symbol, compare
from hfexport_bot.changes.units import BODY, WHOLE, take_apart
from hfexport_bot.changes.uses import Part


def parts(source: str) -> dict[str, set[str]]:
    return {name: set(unit.parts) for name, unit in take_apart(parse(source.encode())).definitions.items()}


def used(source: str, definition: str, part: str = WHOLE) -> Part:
    return read_facts(source.encode()).definitions[definition].parts[part]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(): pass", {"f": {WHOLE}}),
        ("class A(B):\n    'Text.'\n    x = 1\n    y: int\n    def f(self): pass", {"A": {WHOLE, "x", "y", "f"}}),
        ("class A(nn.Module):\n    x: Tensor\n    y: int = 1", {"A": {WHOLE, "y"}}),
        ("@dataclass\nclass A(nn.Module):\n    x: Tensor", {"A": {WHOLE, "x"}}),
        ("if fast():\n    def f(): return 1\nelse:\n    def f(): return 2", {BODY: {WHOLE}, "f": {WHOLE}}),
        ("try:\n    import a\nexcept ImportError:\n    a = None", {"a": {WHOLE}}),
        ("if fast():\n    pass", {}),
        ("T = {'a': A, 'b': B}", {"T": {"['a']", "['b']"}}),
        ("T = OrderedDict([('a', 'A'), ('b', 'B')])", {"T": {"['a']", "['b']"}}),
        ("T = {}\nT['a'] = A\nT.update({'b': B})", {"T": {WHOLE, "['b']"}}),
        ("T = ('a', 'b')", {"T": {"['a']", "['b']"}}),
        ("T = ('a', 1)", {"T": {WHOLE}}),
        ("register(1)\n'text'\npass", {BODY: {WHOLE}}),
        ("__all__ = ['a']", {}),
    ],
)
def test_a_file_is_taken_apart_into_what_a_change_can_name(source: str, expected: dict[str, set[str]]) -> None:
    assert parts(source) == expected


def test_an_addition_to_what_is_defined_elsewhere_belongs_to_it() -> None:
    source = b"T.update({'b': B})\nf.register(1)\n"
    assert take_apart(parse(source), {"T": "constant", "f": "function"}).definitions.keys() == {"T", BODY}
    assert take_apart(parse(source)).definitions.keys() == {BODY}


def test_names_that_are_bound_inside_are_no_uses() -> None:
    source = "from .a import helper, x, Other\ndef f(x):\n    y = helper(x)\n    return [z for z in y] + [Other.make]"
    assert used(source, "f").names == ["Other.make", "helper"]


def test_a_method_uses_its_own_attributes_and_those_of_anything() -> None:
    part = used(
        "class A:\n    def f(self, cache):\n        cache.update(self.layer.weight)\n        cls = self", "A", "f"
    )
    assert (part.own, part.attrs, part.method) == (["layer"], ["update", "weight"], True)
    made = used("class A:\n    @classmethod\n    def f(cls, x): return cls(x)", "A", "f")
    assert made.own == ["__init__"]


def test_attributes_chosen_at_run_time_are_globs() -> None:
    source = "class A:\n    def f(self, kind):\n        return getattr(self, f'_do_{kind}')() + getattr(self, kind)"
    assert used(source, "A", "f").own == ["*", "_do_*"]


def test_a_literal_key_is_kept_and_one_that_is_computed_is_not() -> None:
    source = "from .a import T\ndef f(key): return T['x'].y, T[key]"
    assert used(source, "f").names == ["T", "T['x'].y"]


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("T[key] = x", ["T.="]),
        ("T[key], y = x", ["T.="]),
        ("T[key][1] = x", ["T"]),
        ("T[key] += x", ["T", "T.="]),
        ("T['x'] = x", ["T['x']"]),
        ("T[key] = T[x]", ["T", "T.="]),
        ("T = {}; T[key] = x", []),
    ],
)
def test_what_puts_an_entry_into_a_table_is_told_from_what_looks_one_up(statement: str, names: list[str]) -> None:
    part = used(f"from .a import T\ndef f(key, x):\n    {statement}", "f")
    assert (part.names, part.attrs) == (names, [])


def test_to_set_a_name_of_the_own_module_uses_no_other() -> None:
    source = "import sys\ndef f(name, x): {}(sys.modules[__name__], name{})"
    assert used(source.format("setattr", ", x"), "f").names == []
    assert used(source.format("getattr", ""), "f").names == ["*"]


def test_decorators_that_only_document_are_no_uses() -> None:
    source = "from .a import auto_docstring, wrap, TEXT\n@auto_docstring(TEXT)\n@wrap\ndef f(): pass"
    assert used(source, "f").names == ["wrap"]


def test_imports_of_every_place_are_told_apart() -> None:
    facts = read_facts(
        b"import torch\nfrom .a import x as y\nfrom ..b import *\nimport c.d\nimport e.f as g\n"
        b"if TYPE_CHECKING:\n    from .h import I\ndef f():\n    from .lazy import z\n    return z\n"
    )
    assert facts.imports == [
        Import("y", 1, "a", "x"),
        Import("c", 0, "c", None),
        Import("g", 0, "e.f", None),
        Import("I", 1, "h", "I"),
    ]
    assert facts.stars == [(2, "b")]
    assert facts.inner == [(Import("z", 1, "lazy", "z"), "f", WHOLE)]


def test_what_a_package_offers_is_read() -> None:
    lazy = read_facts(b"import sys\nsys.modules[__name__] = _LazyModule(__name__, define_import_structure(__file__))")
    assert lazy.lazy
    written = read_facts(b"_import_structure = {'utils': ['A']}\n_import_structure['more'] = ['B']\n__all__ = ['C']")
    assert written.structure == {"utils": ["A"], "more": ["B"]}
    assert written.exports == ["C"]


def test_headers_of_generated_and_copied_code_are_read() -> None:
    source = (
        b"# This file was automatically generated from src/transformers/models/a/modular_a.py.\n"
        b"# Copied from transformers.models.b.modeling_b.BLayer with B->A\nclass ALayer: pass\n"
    )
    facts = read_facts(source)
    assert facts.generated == "modular_a.py"
    assert facts.definitions["ALayer"].copied == "models.b.modeling_b.BLayer"


@pytest.mark.parametrize("source", [b"def (", b"x = '\0'", b"\xff\xfe", b"-" * 200_000 + b"1"])
def test_what_is_no_python_has_an_error_and_no_other_facts(source: bytes) -> None:
    facts = read_facts(source)
    assert facts.error is not None
    assert not facts.rows


def test_a_huge_file_is_not_read() -> None:
    error = read_facts(b"#" * (MAX_BYTES + 1)).error
    assert error is not None
    assert "larger than 4 MiB" in error[0]


def test_facts_come_back_as_they_were_kept() -> None:
    source = b"from .a import B\nclass A(B):\n    def forward(self): return self.x\nT = {'a': A}\n"
    facts = read_facts(source)
    again = Facts.load(facts.dump())
    assert again.definitions == facts.definitions
    assert again.imports == facts.imports
    assert list(map(tuple, again.spans)) == facts.spans
    assert Facts.load(read_facts(b"def (").dump()).error == read_facts(b"def (").error


CASES = [
    ("x = 1\ndef f(): return 1\n", "x = 1\ndef f(): return 2\n", {"f changed"}),
    ("@a\ndef f(): pass\n", "@b\ndef f(): pass\n", {"f changed"}),
    ("def f(): pass\n", "def f(): pass\ndef g(): pass\n", {"g was added"}),
    ("class A:\n    x = 1\n    y = 1\n", "class A:\n    x = 1\n", {"A.y was removed"}),
    ("def f(): pass\ndef g(): pass\n", "def g(): pass\ndef f(): pass\n", set()),
    ("T = {'a': 1}\nT.update({'b': 1})\n", "T = {'a': 1}\nT.update({'b': 2})\n", {"T['b'] changed"}),
    ("T = ('a', 'b')\n", "T = ('b', 'a')\n", {"order of T changed"}),
    ("a = 1; b = 2\n", "a = 1; b = 3\n", {"b changed"}),
    ("r(1)\nr(1)\n", "r(1)\n", {"module-level code changed"}),
    ("from a import f\n", "from b import f\n", {"f changed"}),
    ("x = '''\ndef f(): pass\n'''\n", "x = '''\ndef f(): return\n'''\n", {"x changed"}),
    ("class A: pass\nA.x = 1\n", "class A: pass\nA.x = 2\n", {"A changed"}),
    ("x = 1\r\ny = 2\r\n", "x = 1\ny = 3\n", {"y changed"}),
    ("# -*- coding: latin-1 -*-\nx = 'é'\ny = 1\n", "# -*- coding: latin-1 -*-\nx = 'é'\ny = 2\n", {"y changed"}),
    ("def (", "x = 1\n", {"x changed"}),
]


@pytest.mark.parametrize(("old", "new", "expected"), CASES)
def test_two_versions_compare_alike_whether_or_not_their_facts_are_known(
    old: str, new: str, expected: set[str]
) -> None:
    sources = old.encode("latin-1"), new.encode("latin-1")
    known = (read_facts(sources[0]), read_facts(sources[1]))
    whole, parts = compare("a.py", *sources), compare("a.py", *sources, known)
    assert {str(symbol) for symbol in whole.symbols} == expected
    assert {str(symbol) for symbol in parts.symbols} == expected
    assert parts.imports == whole.imports


USERS = """
class A(B):
    x: int
    def g(self):
        return f(1)
class C:
    def h(self, f):
        return f
def once(): return f
T = {"k": f}
f(2)
"""


@pytest.mark.parametrize(
    ("old", "new", "uses"),
    [
        ("from a import f\n", "from b import f\n", 4),
        ("from a import f\n", "", 4),
        ("", "try:\n    from a import f\nexcept ImportError:\n    f = None\n", 4),
        ("import f\nfrom a import unused\n", "import f\n", 0),
        ("from a import f\n", "if 1:\n    from a import f\n", 4),
        ("from a import f\nfrom b import f\n", "from b import f\nfrom a import f\n", 4),
        ("import f, g\n", "import g, f\n", None),
        ("", "from __future__ import annotations\n", 1),
        ("from a import f, g\n", "from a import g\n", 4),
    ],
)
def test_changed_imports_and_their_uses_are_found_in_parts_of_a_file_too(old: str, new: str, uses: int | None) -> None:
    sources = (old + USERS).encode(), (new + USERS).encode()
    known = (read_facts(sources[0]), read_facts(sources[1]))
    found = compare("a.py", *sources, known).imports
    whole = compare("a.py", *sources).imports
    assert [(each.name, each.uses) for each in found] == [(each.name, each.uses) for each in whole]
    assert [len(each.uses) for each in found] == ([] if uses is None else [uses])


def test_of_a_changed_import_only_imports_and_what_has_its_name_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []

    def counted(source: bytes) -> ast.Module:
        parsed.append(source)
        return parse(source)

    sources = [f"from {each} import f\nimport os\nclass Large:\n    x = 1\ndef g(): return f\n" for each in "ab"]
    old, new = (each.encode() for each in sources)
    known = (read_facts(old), read_facts(new))
    monkeypatch.setattr(units, "parse", counted)
    (found,) = compare("a.py", old, new, known).imports
    assert found.uses == (("g", WHOLE),)
    assert len(parsed) > 2
    assert not any(b"Large" in source for source in parsed)
    assert sum(b"def g" in source for source in parsed) == 1


def test_a_side_that_is_no_python_changes_all_of_the_other() -> None:
    compared = compare("a.py", b"x = 1\ny = 2\n", b"def (")
    assert compared.symbols == (Symbol("a.py", "x"), Symbol("a.py", "y"))
    assert compared.error is not None
    assert not compared.both_broken
