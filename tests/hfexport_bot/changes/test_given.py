"""Code of all models that runs only where an argument is given, or a configuration has a property: who is affected."""

from __future__ import annotations

import ast
import itertools

import pytest

from hfexport_bot.changes.folding import defaults_of, folded
from hfexport_bot.changes.given import Given, needed_for, when_changed
from hfexport_bot.changes.handing import handed_on
from hfexport_bot.changes.selection import NOT_EXPORTED
from tests.hfexport_bot.changes.checkout import ALL, FAR, FILES, SRC, TOY, affected, not_run, run

FAR_MODELS = {"FarModel", "FarForCausalLM"}
TOY_MODELS = {"ToyModel", "ToyForCausalLM"}


def function(text: str) -> ast.FunctionDef:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    return node


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("if p is not None: x = p\nreturn x", "return x"),
        ("if p is None: return 1\nreturn x", "return 1"),
        ("y = a(x) if p is not None else x", "y = x"),
        ("if p is not None and x: x = 1\nreturn x", "return x"),
        ("if p is not None and f(x): x = 1\nreturn x", "return x"),
        ("if f(x) and p is not None: x = 1\nreturn x", "if f(x) and False: x = 1\nreturn x"),
        ("if x:\n    if p is not None: p = 1\nreturn p", "return None"),
        ("for i in x:\n    if p is not None: p = i\nreturn p", "for i in x: pass\nreturn None"),
        ("try:\n    x = x[p] if p is not None else x\nexcept ValueError: pass\nreturn x", "return x"),
        ("p = 3\nreturn p", "return 3"),
        ("p = 3\nif x: p = 4\nreturn p", "p = 3\nif x: p = 4\nreturn p"),
        ("for i in x: p = i\nreturn p", "p = None\nfor i in x: p = i\nreturn p"),
        ("p += 1\nreturn p", "p = None\np += 1\nreturn p"),
        ("g = lambda: p\np = 2\nreturn g()", "g = lambda: p\np = 2\nreturn g()"),
        ("g = lambda p: p is None\nreturn g(1)", "g = lambda p: p is None\nreturn g(1)"),
        ("def g(): return p is None\nreturn g", "def g(): return True\nreturn g"),
        ("global p\nreturn p", "global p\nreturn p"),
        ("return locals(), p", "return locals(), p"),
        ("from m import p\nreturn p", "p = None\nfrom m import p\nreturn p"),
    ],
)
def test_a_function_is_folded_where_an_argument_keeps_its_default(body: str, left: str) -> None:
    def defined(text: str) -> ast.FunctionDef:
        return function("def f(x, p=None):\n" + "\n".join(f"    {line}" for line in text.split("\n")))

    found = folded(defined(body), defaults_of(defined(body)), {}, {})
    assert ast.unparse(found) == ast.unparse(defined(left))


def test_folding_keeps_what_a_function_returns() -> None:
    """Every short body of some statements, run as written and as folded."""
    statements = (
        "if p is not None: x += 1",
        "p = None",
        "p = x",
        "if x > 1: p = 5",
        "for p in range(x): x += p",
        "x = x",
    )
    for body in itertools.product(statements, repeat=3):
        whole = function("def f(x, p=None):\n    " + "\n    ".join([*body, "return (x, p)"]))
        left = folded(whole, defaults_of(whole), {}, {})
        results = []
        for node in (whole, left):
            space: dict[str, object] = {}
            exec(ast.unparse(ast.Module([node], [])), space)
            made = space["f"]
            assert callable(made)
            try:
                results.append([made(value) for value in (0, 1, 2)])
            except TypeError as error:
                results.append([str(error)])
        assert results[0] == results[1], body


@pytest.mark.parametrize(
    ("old", "new", "when"),
    [
        # An argument that is new, and that says the same when left out.
        ("def f(x): return x", "def f(x, p=True): return x if p else -x", (Given("p", 1, default="True"),)),
        ("def f(x): return x", "def f(x, *, p=True): return x if p else -x", (Given("p", default="True"),)),
        ("def f(x, p=None): return x", "def f(x): return x", (Given("p", 1),)),
        (
            "def f(x):\n    p = True\n    return g(x, p)",
            "def f(x, p=True): return g(x, p)",
            (Given("p", 1, default="True"),),
        ),
        ("def f(x):\n    p = False\n    return g(x, p)", "def f(x, p=True): return g(x, p)", None),
        ("def f(x): return x", "def f(x, p=True): return x if not p else -x", None),
        ("def f(x): return x", "def f(x, p): return x", None),
        ("def forward(x): return x", "def forward(x, p=None): return x", None),
        ("def f(x, p=1): return x", "def f(x, p=2): return x", None),
        # One that both have.
        (
            "def f(x, p=None): return x",
            "def f(x, p=None):\n    if p is not None: x = x + p\n    return x",
            (Given("p", 1),),
        ),
        (
            "def f(self): return 1",
            "def f(self):\n    if self.is_heterogeneous: return 2\n    return 1",
            (Given("per_layer_config", argument=False),),
        ),
        ("def f(self): return 1", "def f(self):\n    if self.other: return 2\n    return 1", None),
        ("@adding\ndef f(x): return x", "@adding\ndef f(x, p=True): return x if p else -x", None),
        (
            "def f(x, p=None):\n    y = [p := 3]\n    if p: x = 1",
            "def f(x, p=None):\n    y = [p := 3]\n    if p: x = 2",
            None,
        ),
    ],
)
def test_what_must_be_given_for_two_versions_to_differ(old: str, new: str, when: tuple[Given, ...] | None) -> None:
    assert when_changed(function(old), function(new)) == when


def test_an_argument_handed_on_with_its_own_default_is_not_given() -> None:
    old, new = function("def f(x): return g(x)"), function("def f(x, p=True): return g(x, p=p)")
    assert when_changed(old, new) is None
    assert when_changed(old, new, ({}, {"g": defaults_of(function("def g(x, p=True): return x"))})) == (
        Given("p", 1, default="True"),
    )
    assert when_changed(old, new, ({}, {"g": defaults_of(function("def g(x, p=False): return x"))})) is None


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("def f(x, p=None): return g(x)", ()),
        ("def f(x, p=None): return x", None),
        ("def f(x, p=None):\n    if p is not None: x = g(x)\n    return x", (Given("p", 1),)),
        ("def f(x, p=None):\n    if p is None: x = g(x)\n    return x", ()),
        ("def f(x, p=None):\n    if p is not None or x: x = g(x)\n    return x", ()),
        (
            "def f(x, p=None):\n    if p is not None:\n        from m import g\n        g(x)\n    return x",
            (Given("p", 1),),
        ),
    ],
)
def test_what_must_be_given_to_get_to_a_use(text: str, needed: tuple[Given, ...] | None) -> None:
    assert needed_for(function(text), "g") == needed


@pytest.mark.parametrize(
    ("text", "handed"),
    [
        ("def f(x): return g(x)", None),
        ("def f(x): return g(x, p=1)", ()),
        ("def f(x): return g(x, 1)", ()),
        ("def f(x): return g(*x)", ()),
        ("def f(x, **kwargs): return g(x, **kwargs)", [Given("p")]),
        ("def f(x):\n    kwargs = {'p': 1}\n    return g(x, **kwargs)", ()),
        ("def f(x, **kwargs):\n    kwargs.update(p=1)\n    return g(x, **kwargs)", ()),
        ("def f(x, p=None): return g(x, p=p)", [Given("p", 1)]),
        ("def f(x, q=None): return g(x, p=q)", [Given("q", 1)]),
        ("def f(x, p): return g(x, p=p)", ()),
        # Not called by its name: any call that may be of it.
        ("def f(x):\n    h = g\n    return h(x, 1)", ()),
        ("def f(x):\n    h = g\n    return h(x.view(*x, -1))", None),
        ("def f(x): return isinstance(x, g) and h(x, 1)", None),
        ("def f(x): return g(x) if isinstance(x, g) else h(x, 1)", None),
        # A default of its own, or another value.
        ("def f(x, p=3): return g(x, p=p)", ()),
        ("def f(x, p=None):\n    p = p or 4\n    return g(x, p=p)", ()),
        ("def f(x, p=None):\n    if p is None: p = 4\n    return g(x, p=p)", ()),
        ("def f(x, p=None):\n    for p in x: g(x, p=p)", ()),
        ("def f(x, p=None): return (p := 4) and g(x, p=p)", ()),
        ("def f(x, p=None):\n    def h(p=3): return g(x, p=p)\n    return h()", ()),
        ("def f(x, p=None): return (lambda p=3: g(x, p=p))()", ()),
        ("@adding\ndef f(x, p=None): return g(x, p=p)", ()),
        ("@adding\ndef f(x, **kwargs): return g(x, **kwargs)", ()),
        ("@no_grad()\ndef f(x, p=None): return g(x, p=p)", [Given("p", 1)]),
        ("@deprecate_kwarg('o', new_name='p')\ndef f(x, p=None): return g(x, p=p)", ()),
        # Mappings.
        ("def f(x):\n    kwargs = {'q': 1}\n    return g(x, **kwargs)", None),
        ("def f(x):\n    kwargs = {'q': 1}\n    kwargs['p'] = 2\n    return g(x, **kwargs)", ()),
        ("def f(x):\n    kwargs = {'q': 1}\n    h(kwargs)\n    return g(x, **kwargs)", ()),
        ("def f(x):\n    kwargs = h()\n    return g(x, **kwargs)", ()),
        ("def f(x, **kwargs):\n    kwargs.setdefault('p', 1)\n    return g(x, **kwargs)", ()),
        ("def f(x, **kwargs):\n    kwargs.pop('q')\n    return g(x, **kwargs)", [Given("p")]),
        ("def f(x): return g(x, **self.kwargs)", ()),
        ("def f(x, p=3): return g(**locals())", ()),
        # Handed to others, or held by them.
        ("def f(x): return partial(g, x, 1)()", ()),
        ("def f(x): return map(g, x, x)", ()),
        ("def f(x): return checkpoint(g, x, 1)", ()),
        ("def f(self): self.h = g", ()),
        ("def f(x, h=g): return h(x, 1)", ()),
        ("def f(x):\n    for h in (g,): h(x, 1)", ()),
        ("def f(self): g.__init__(self, 1, 2)", ()),
        ("def f(x): h(x, 1)", ()),
        ("def f(x): return g['a'](x, 1)", ()),
        ("def f(x): return g.get('a', x)(x)", None),
        # Classes.
        ("class F(g): pass", [Given("p", 1)]),
        ("class F(g):\n    def __init__(self, a): super().__init__(a)", [Given("p", 1)]),
        ("class F(g):\n    def __init__(self, a): super().__init__(a, 4)", ()),
        ("class F(g):\n    def __init__(self, a, b=4): super().__init__(a, p=b)", ()),
        ("class F(g):\n    def __init__(self, a, b=None): super().__init__(a, p=b)", [Given("b", 1)]),
        ("class F(g):\n    def __init__(self): g.__init__(self, 3, 4)", ()),
        ("class F:\n    h = staticmethod(g)", ()),
        # Statements of a file's own level.
        ("h = g", [Given("p", 1)]),
        ("T = {'a': g}", [Given("p", 1)]),
        ("h = partial(g, p=4)", ()),
        ("h = lambda x, p=3: g(x, p=p)", ()),
        ("g.__defaults__ = (1, 3)", ()),
    ],
)
def test_what_is_handed_on(text: str, handed: object) -> None:
    assert handed_on(ast.parse(text).body, "g", [Given("p", 1)]) == handed


# -- on a small checkout ---------------------------------------------------------------------------------------------

ATTENTION = SRC + "integrations/attention.py"
MASKS = SRC + "masking_utils.py"


def attending(name: str, call: str = "attend(x)") -> str:
    """A model whose layer looks its attention up."""
    path = SRC + f"models/{name.lower()}/modeling_{name.lower()}.py"
    header = "from ...integrations.attention import ATTENTIONS\n"
    forward = f"\n        attend = ATTENTIONS['sdpa']\n        return {call}"
    return header + FILES[path].replace("return cache.update(x, x, 0)", forward)


BIASED = {
    ATTENTION: """
def combine(bias): return bias
def sdpa(x, scale=1, bias=None, **kwargs):
    if bias is not None:
        x = x + combine(bias)
    return x
ATTENTIONS = {"sdpa": sdpa}
""",
    TOY: attending("Toy"),
    FAR: attending("Far", "attend(x, bias=self.bias)"),
}


@pytest.mark.parametrize(
    ("old", "new", "classes"),
    [
        ("x + combine(bias)", "x - combine(bias)", FAR_MODELS),
        ("return bias", "return -bias", FAR_MODELS),
        ("return x", "return x + 1", ALL),
        ("scale=1, bias", "scale=2, bias", ALL),
        # New, and the same when left out: who gives it has changed as well.
        ("bias=None, **kwargs", "bias=None, extra=None, **kwargs", set()),
    ],
)
def test_code_for_an_optional_argument_affects_those_that_give_it(old: str, new: str, classes: set[str]) -> None:
    assert affected(run({ATTENTION: (old, new)}, BIASED)) == classes


@pytest.mark.parametrize("call", ["attend(x, 1, self.bias)", "attend(x, **{'bias': 1})", "attend(*self.all(x))"])
def test_an_argument_may_be_given_by_place_or_key(call: str) -> None:
    extra = BIASED | {TOY: attending("Toy", call)}
    assert affected(run({ATTENTION: ("x + combine(bias)", "x - combine(bias)")}, extra)) == ALL


def test_an_argument_may_be_given_by_who_borrows_the_code() -> None:
    edit = {ATTENTION: ("x + combine(bias)", "x - combine(bias)")}
    far = FILES[FAR].replace("class FarLayer:", "from ..toy.modeling_toy import ToyLayer\nclass FarLayer:")
    borrowing = far.replace("self.layer(x, ", "self.layer(x, bias=1, cache=").replace(
        "FarLayer(config)", "ToyLayer(config)"
    )
    toy = attending("Toy", "attend(x, **kwargs)").replace(
        "def forward(self, x, cache)", "def forward(self, x, cache, **kwargs)"
    )
    assert affected(run(edit, {**BIASED, TOY: toy, FAR: borrowing})) == ALL
    assert affected(run(edit, {**BIASED, TOY: toy, FAR: FILES[FAR]})) == set()


def test_shared_code_hands_an_argument_on() -> None:
    """A mask that passes an optional argument on affects who gives it; one that always gives it, everyone."""
    edit = {ATTENTION: ("x + combine(bias)", "x - combine(bias)")}
    through = {
        MASKS: "from .integrations.attention import sdpa\ndef mask(x, bias=None): return sdpa(x, bias=bias)\n",
        TOY: attending("Toy")
        .replace("integrations.attention import ATTENTIONS", "masking_utils import mask")
        .replace("attend = ATTENTIONS['sdpa']\n        return attend(x)", "return mask(x)"),
    }
    assert affected(run(edit, BIASED | through)) == FAR_MODELS
    always = {MASKS: through[MASKS].replace("bias=bias", "bias=1")}
    assert affected(run(edit, BIASED | through | always)) == ALL
    gives = {TOY: through[TOY].replace("mask(x)", "mask(x, bias=2)")}
    assert affected(run(edit, BIASED | through | gives)) == ALL


CONFIGURATION = SRC + "configuration_utils.py"
MIXIN = """class View:
    def pick(self): return 1
class Mixin:
    @property
    def per_layer_config(self): return View()
class PreTrainedConfig(Mixin, """
CHECK = """def validate_size(self):
        if self.is_heterogeneous: self.per_layer_config
        """
TESTER = """
class FarModelTester:
    def get_config(self): return FarConfig(per_layer_config={0: {'size': 2}})
"""
LAYERED = {
    CONFIGURATION: FILES[CONFIGURATION]
    .replace("class PreTrainedConfig(", MIXIN)
    .replace("def validate_size(self): ", CHECK),
    "tests/models/far/test_modeling_far.py": TESTER,
}


@pytest.mark.parametrize(
    ("old", "new", "classes"),
    [
        ("def pick(self): return 1", "def pick(self): return 2", FAR_MODELS),
        ("self.is_heterogeneous: self.per_layer_config", "self.is_heterogeneous: self.per_layer_config[0]", FAR_MODELS),
        ("return self.size > 0", "return self.size > 1", ALL),
    ],
)
def test_code_for_a_property_affects_the_configurations_that_get_it(old: str, new: str, classes: set[str]) -> None:
    assert affected(run({CONFIGURATION: (old, new)}, LAYERED)) == classes


@pytest.mark.parametrize(
    "member",
    [
        "is_heterogeneous = True",
        "@property\n    def is_heterogeneous(self): return True",
        "def __init__(self, layers): setattr(self, 'per_layer_config', layers)",
        "def __init__(self, layers): self.per_layer_config = layers",
        "def __init__(self, layers): apply_heterogeneous_config(self, layers)",
        "def __init__(self, per_layer_config): super().__init__(per_layer_config)",
    ],
)
def test_a_configuration_may_get_a_property_in_other_ways(member: str) -> None:
    path = SRC + "models/far/configuration_far.py"
    extra = {CONFIGURATION: LAYERED[CONFIGURATION], path: FILES[path].replace("size: int", f"{member}\n    size: int")}
    edit = {CONFIGURATION: ("def pick(self): return 1", "def pick(self): return 2")}
    assert affected(run(edit, extra)) == FAR_MODELS


def test_a_cache_that_only_an_optional_argument_makes() -> None:
    cache = SRC + "cache_utils.py"
    made = """class SlidingLayer(DynamicLayer):
    def update(self, k, v): return v, k
class DynamicCache(Cache):
    def __init__(self, kind, data=None):
        super().__init__(kind)
        if data is not None: self.layers = [SlidingLayer() for each in data]
"""
    extra = {cache: FILES[cache].replace("class DynamicCache(Cache):\n    pass\n", made)}
    edit = {cache: ("return v, k", "return k, v")}
    assert affected(run(edit, extra)) == set()
    for call in ('DynamicCache("full", x)', 'DynamicCache("full", data=x)'):
        assert affected(run(edit, extra | {FAR: FILES[FAR].replace('DynamicCache("full")', call)})) == FAR_MODELS


HOLDER = "from ..toy.configuration_toy import ToyConfig"
SLIDING = """
class SlidingLayer(CacheLayerMixin):
    def update(self, k, v): return v, k
DYNAMIC_LAYER_TYPE_MAPPING = {"full": DynamicLayer, "sliding_attention": SlidingLayer}
def kinds(config):
    return ["sliding_attention"] if getattr(config, "sliding_window", None) else ["full"]
class Cache:
    def __init__(self, config): self.layers = [DYNAMIC_LAYER_TYPE_MAPPING[kind]() for kind in kinds(config)]
    def update"""


@pytest.mark.parametrize("field", ["sliding_window: int = 2", "def __post_init__(self): self.sliding_window = 2"])
def test_a_kind_of_cache_layer_is_made_for_the_configurations_with_its_field(field: str) -> None:
    cache, config = SRC + "cache_utils.py", SRC + "models/far/configuration_far.py"
    text = FILES[cache].replace(
        "class Cache:\n    def __init__(self, kind): self.layers = [LAYERS[kind]()]\n    def update", SLIDING
    )
    extra = {cache: text, config: FILES[config].replace("size: int = 4", field)}
    edit = {cache: ("return v, k", "return k, v")}
    assert affected(run(edit, extra)) == FAR_MODELS
    assert affected(run(edit, extra | {cache: text.replace('"sliding_window"', '"window"')})) == ALL
    # What puts a layer into the table looks none up, and is affected by none of them.
    made = "def __init__(self, config{}): {}self.layers = [DYN"
    optional = text.replace(made.format("", ""), made.format("=None", "\n        if config is not None: "))
    registering = "class CacheLayerMixin:\n    kind = None\n    def __init_subclass__(cls): "
    fills = optional.replace("class CacheLayerMixin:\n", f"{registering}DYNAMIC_LAYER_TYPE_MAPPING[cls.kind] = cls\n")
    assert affected(run(edit, extra | {cache: fills})) == FAR_MODELS
    assert affected(run(edit, extra | {cache: fills.replace("] = cls", "] += cls")})) == ALL
    without_cache = FILES[FAR].replace('DynamicCache("full")', "None").replace("cache.update(x, x, 0)", "x")
    assert affected(run(edit, extra | {FAR: without_cache})) == set()
    derived = (
        FILES[config]
        .replace("from ...configuration_utils import PreTrainedConfig", HOLDER)
        .replace("size: int = 4", "")
    )
    toy = SRC + "models/toy/configuration_toy.py"
    inherited = extra | {
        toy: FILES[toy].replace("size: int = 4", field),
        config: derived.replace("(PreTrainedConfig)", "(ToyConfig)"),
    }
    assert affected(run(edit, inherited)) == ALL


def test_a_kind_of_cache_layer_without_a_field_is_for_the_configurations_that_name_it() -> None:
    cache, config = SRC + "cache_utils.py", SRC + "models/far/configuration_far.py"
    made = "class Cache:\n    def __init__(self, kind): self.layers = [LAYERS[kind]()]\n    def update"
    text = FILES[cache].replace(made, SLIDING.replace("sliding_attention", "mlp"))
    extra = {
        cache: text.replace('["mlp"] if', '["full"] if'),
        config: FILES[config].replace("size: int = 4", "kind = 'mlp'"),
    }
    extra[TOY] = FILES[TOY].replace("def forward(self, x):", "def forward(self, x, mlp=1):")
    assert affected(run({cache: ("return v, k", "return k, v")}, extra)) == FAR_MODELS


def test_what_is_set_behind_the_boundary_alone_affects_nothing() -> None:
    utils = SRC + "modeling_utils.py"
    plan = "self._tp_plan = config.base_model_tp_plan"
    other = "self._tp_plan = dict(config.base_model_tp_plan or {})"
    selection = run({utils: (plan, f"{other}\n        if self.base: self._tp_plan.update({{1: 2}})")})
    assert affected(selection) == set()
    assert not_run(selection)[f"{utils}:PreTrainedModel.__init__"] == NOT_EXPORTED
    assert affected(run({utils: (plan, "self._tp_plan = self.spread(config)")})) == ALL
    assert affected(run({utils: (plan, f"{plan}\n        self.plan = 1")})) == ALL


def test_folding_leaves_the_function_as_it_was() -> None:
    whole = function("def f(p=None):\n    if p: x = 1\n    else:\n        with p: x = [p]\n    return p, x")
    before = ast.dump(whole)
    folded(whole, defaults_of(whole), {}, {})
    assert ast.dump(whole) == before


@pytest.mark.parametrize("edit", [("class Gelu", "print(1)\nclass Gelu"), ("print(2)\n", "")], ids=["comes", "goes"])
def test_code_that_runs_at_import_may_be_on_one_side_alone(edit: tuple[str, str]) -> None:
    path = SRC + "activations.py"
    extra = {path: FILES[path] if edit[1] else FILES[path] + "print(2)\n"}
    assert affected(run({path: edit}, extra)) == ALL


@pytest.mark.parametrize(
    "broken",
    ["x = = combine(bias)", "x = x" + " + x" * 20_000, "x = x" + ".a" * 5_000, "x = (x + combine(bias)"],
    ids=["syntax error", "long sum", "deep attribute", "open parenthesis"],
)
def test_shared_code_that_cannot_be_read_affects_whoever_uses_it(broken: str) -> None:
    assert affected(run({ATTENTION: ("x = x + combine(bias)", broken)}, BIASED)) >= FAR_MODELS
