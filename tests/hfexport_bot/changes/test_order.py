"""A new order of statements, and other conditions around them: what that changes, and what it does not."""

from __future__ import annotations

import pytest

from hfexport_bot.changes.facts import read_facts
from hfexport_bot.changes.symbols import Compared, compare


def compared(old: str, new: str) -> Compared:
    sources = old.encode(), new.encode()
    return compare("a.py", *sources, (read_facts(sources[0]), read_facts(sources[1])))


def found(old: str, new: str) -> set[str]:
    return {str(symbol) for symbol in compared(old, new).symbols}


def swapped(text: str) -> str:
    """With the statements around ``---`` the other way round; what is before ``===`` stays."""
    start, _, rest = text.rpartition("===\n")
    first, _, second = rest.partition("---\n")
    return start + second + first


def plain(text: str) -> str:
    return text.replace("---\n", "").replace("===\n", "")


OF_STATEMENTS = [
    ("x = 1\n---\nx = 2\n", {"order of x changed"}),
    ("x = 1\n===\nx = f(x)\n---\nx = g(x)\n", {"order of x changed"}),
    ("x = 1\n===\nx += 1\n---\nx *= 5\n", {"order of x changed"}),
    ("x, y = 1, 2\n---\nx, z = 3, 4\n", {"order of x changed", "order of y changed", "order of z changed"}),
    ("def f(): return 1\n---\ndef f(): return 2\n", {"order of f changed"}),
    ("def f(): return 1\n---\nfrom b import f\n", {"order of f changed"}),
    ("from a import f\n---\nfrom b import f\n", {"order of f changed"}),
    ("import a as f\n---\nimport b as f\n", {"order of f changed"}),
    ("A = 1\n===\nx = A\n---\nA = 2\n", {"order of x changed"}),
    ("A = 1\n===\nx = [A for _ in y]\n---\nA = 2\n", {"order of x changed"}),
    ("A = 1\ndef f(): return A\n===\nx = f()\n---\nA = 2\n", {"order of x changed"}),
    ("A = 1\ndef f(): return A\ndef g(): return f()\n===\nx = g()\n---\nA = 2\n", {"order of x changed"}),
    ("A = 1\n===\ndef f(x, a=A): pass\n---\nA = 2\n", {"order of f changed"}),
    ("A = 1\n===\nclass C:\n    x = A\n---\nA = 2\n", {"order of C changed"}),
    ("A = 1\n===\nif c: x = A\n---\nA = 2\n", {"order of x changed"}),
    ("A = 1\n===\nif A: x = 1\n---\nA = 2\n", {"order of x changed"}),
    ("if a: x = 1\n---\nif b: x = 2\n", {"order of x changed"}),
    ("import torch\n===\ntorch.manual_seed(0)\n---\nx = torch.rand(2)\n", {"order of x changed"}),
    ("class A: pass\n===\nA.x = 1\n---\nA.x = 2\n", {"order of A changed"}),
    ("T = {}\n===\nT['a'] = 1\n---\nT['b'] = 2\n", {"order of T changed"}),
    ("T = {}\n===\nT['a'] = 1\n---\nT['a'] = 2\n", {"order of T changed"}),
    ("T = {}\n===\nT.update({'a': 1})\n---\nT.update({'a': 2})\n", {"order of T changed"}),
    ("T = []\n===\nT.append(1)\n---\nT.append(2)\n", {"order of T changed"}),
    ("T = [1]\n===\nx = T.pop()\n---\ny = T.pop()\n", {"order of T changed"}),
    ("T = []\n===\nT.append(1)\n---\nx = len(T)\n", {"order of x changed"}),
    ("T = {}\ndef put(k, v): T[k] = v\n===\nput('a', 1)\n---\nput('a', 2)\n", {"order of T changed"}),
    ("n = 0\ndef up():\n    global n\n    n += 1\n===\nup()\n---\nx = n\n", {"order of x changed"}),
    ("from b import put\n===\nput('a', 1)\n---\nput('a', 2)\n", {"order of module-level code changed"}),
    (
        "from b import register\n===\n@register('a')\ndef f(): 0\n---\n@register('a')\ndef g(): 0\n",
        {"order of f changed", "order of g changed"},
    ),
    ("T = []\ndef add(f): T.append(f)\n===\n@add\ndef f(): 0\n---\n@add\ndef g(): 0\n", {"order of T changed"}),
    (
        "T = []\nclass B:\n  def __init_subclass__(cls): T.append(cls)\n===\nclass C(B): 0\n---\nclass D(B): 0\n",
        {"order of T changed"},
    ),
    ("x = 1\n===\ndel x\n---\nx = 2\n", {"order of module-level code changed", "order of x changed"}),
    ("x = 0\n===\nfor i in a: x += i\n---\nx = 2\n", {"order of module-level code changed", "order of x changed"}),
]


@pytest.mark.parametrize(("text", "expected"), OF_STATEMENTS)
def test_statements_that_depend_on_each_other_are_changed_by_a_new_order(text: str, expected: set[str]) -> None:
    assert found(plain(text), swapped(text)) == expected
    assert compared(plain(text), swapped(text)).moved


@pytest.mark.parametrize(
    "text",
    [
        "def f(): return g()\n---\ndef g(): return 1\n",
        "x = 1\n---\ny = 2\n",
        "x = 1\n---\ndef f(): return x\n",
        "def f(): return A\n---\nA = 1\n",
        "import a\n---\nimport b\n",
        "from a import *\n===\nimport b\n---\nimport c\n",
        "from a import f\n---\nx = 1\n",
        "class A: pass\n---\nclass B:\n    def f(self): return A()\n",
        "class A: pass\n===\nA.x = 1\n---\nA.y = 2\n",
        "from b import put\n===\nput('a', 1)\n---\nput('b', 2)\n",
        "T = {}\ndef put(k, v): T[k] = v\n===\nput('a', 1)\n---\nput('b', 2)\n",
        "from b import register\n===\n@register('a')\ndef f(): 0\n---\n@register('b')\ndef g(): 0\n",
        "from b import register\n===\n@register('a', 'x')\ndef f(): 0\n---\n@register('a', 'y')\ndef g(): 0\n",
        "from b import log\nlogger = log()\n===\nlogger.info('a')\n---\nlogger.info('b')\n",
        "class B:\n    def f(self): return C()\n===\nclass D(B): pass\n---\nclass C: pass\n",
        "T = {}\n===\nT['a'] = 1\n---\nx = 1\n",
        "x = [i for i in a]\n---\ni = 1\n",
        "from __future__ import annotations\n===\ndef f(x: A): pass\n---\nclass A: pass\n",
        "from __future__ import annotations\n===\nx: A = 1\n---\nclass A: pass\n",
        "r(1)\n---\nr(1)\n# twice\n",
    ],
)
def test_what_does_not_depend_on_each_other_may_stand_in_any_order(text: str) -> None:
    assert found(plain(text), swapped(text)) == set()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("class A: pass\n---\nclass B(A): pass\n", "A"),
        ("def d(f): return f\n---\n@d\ndef g(): pass\n", "d"),
        ("x = 1\n---\ny = x\n", "x"),
        ("class A: pass\n---\ndef f(x: A): pass\n", "A"),
    ],
)
def test_a_file_that_uses_a_name_before_it_has_a_value_cannot_be_imported(text: str, name: str) -> None:
    assert f"uses {name} before it is defined" in {each.how for each in compared(plain(text), swapped(text)).symbols}


def in_class(header: str, *lines: str) -> str:
    return f"{header}\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize(
    "header",
    [
        "@dataclass\nclass A:",
        "@dataclass\nclass A(SomeConfig):",
        "class A(ModelOutput):",
        "class A(NamedTuple):",
        "class A(TypedDict):",
        "class A:",
    ],
)
def test_the_fields_of_a_class_have_an_order(header: str) -> None:
    assert found(in_class(header, "x: int", "y: int"), in_class(header, "y: int", "x: int")) == {"order of A changed"}


@pytest.mark.parametrize("header", ["class A(Enum):", "class A(enum.IntFlag):", "class A(str, ExplicitEnum):"])
def test_the_members_of_an_enumeration_have_an_order(header: str) -> None:
    assert found(in_class(header, "X = auto()", "Y = auto()"), in_class(header, "Y = auto()", "X = auto()")) == {
        "order of A changed"
    }


@pytest.mark.parametrize(
    ("header", "lines"),
    [
        ("class A:", ("def f(self): pass", "def g(self): pass")),
        ("class A(nn.Module):", ("x: int", "y: int")),
        ("class A(LlamaPreTrainedModel):", ("x: int = 1", "y: int = 2")),
        ("class A(PreTrainedConfig):", ("x: int = 1", "y: int = 2")),
        ("class A(B):", ("x = 1", "y = 2")),
        ("@dataclass\nclass A:", ("x: int = 1", "def f(self): pass")),
    ],
)
def test_other_members_of_a_class_may_stand_in_any_order(header: str, lines: tuple[str, str]) -> None:
    result = compared(in_class(header, *lines), in_class(header, *lines[::-1]))
    assert result.symbols == ()
    assert result.moved


def test_members_that_depend_on_each_other_are_changed_by_a_new_order() -> None:
    old = in_class("class A:", "x = 1", "y = x", "x = 2", "z = 3")
    assert found(old, in_class("class A:", "z = 3", "x = 1", "x = 2", "y = x")) == {"order of A.y changed"}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("if a():\n    def f(): pass\n", "if b():\n    def f(): pass\n", "f"),
        ("if a():\n    from b import f\n", "if b():\n    from b import f\n", "f"),
        ("if a():\n    x = 1\nelse:\n    x = 2\n", "if b():\n    x = 1\nelse:\n    x = 2\n", "x"),
        ("x = 1\nif a():\n    y = 1\n", "if a():\n    y = 1\n    x = 1\n", "x"),
        ("if a():\n    x = 1\n    y = 1\n", "if a():\n    y = 1\nx = 1\n", "x"),
        ("if a():\n    x = 1\n    y = 1\nelse:\n    z = 1\n", "if a():\n    y = 1\nelse:\n    z = 1\n    x = 1\n", "x"),
        ("if a():\n    x = 1\nelse:\n    z = 1\n", "if a():\n    x = 1\nelif b():\n    pass\nelse:\n    z = 1\n", "z"),
        ("try:\n    import f\nexcept E:\n    g = 1\n", "try:\n    import f\nexcept D:\n    g = 1\n", "f, g"),
        ("try:\n    import a\nexcept E:\n    x = 1\n", "try:\n    import b\nexcept E:\n    x = 1\n", "x"),
        ("x = 1\nwith a():\n    y = 1\n", "with a():\n    y = 1\n    x = 1\n", "x"),
        (
            "class A:\n    x = 1\n    if a():\n        y = 1\n",
            "class A:\n    if a():\n        y = 1\n        x = 1\n",
            "A.x",
        ),
        ("if a():\n    r(1)\n", "if b():\n    r(1)\n", "module-level code"),
        ("from b import f\n", "if TYPE_CHECKING:\n    from b import f\n", "f"),
    ],
)
def test_other_conditions_around_a_definition_change_it(old: str, new: str, expected: str) -> None:
    around = {each.removeprefix("condition around ").removesuffix(" changed") for each in found(old, new)}
    assert around >= {*expected.split(", ")}
    assert around <= {*expected.split(", "), "a was removed", "b was added"}


def test_conditions_that_only_type_checkers_see_change_nothing() -> None:
    old, new = (f"if TYPE_CHECKING:\n    if {each}():\n        from b import f\ndef g(): return f\n" for each in "ab")
    assert found(old, new) == set()


def test_what_runs_at_import_and_acts_on_others_is_seen_where_it_moved() -> None:
    assert compared("r.x('a', 1)\nr.x('a', 2)\n", "r.x('a', 2)\nr.x('a', 1)\n").acts
