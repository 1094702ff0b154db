from __future__ import annotations

import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hfexport_bot.schema import Location, Outcome, OutcomeKind, UnavailableCause
from hfexport_bot.verdicts.signatures import normalise, signature


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Could not guard on Eq(u3, 1), s77*s0, zuf2", "Could not guard on Eq(u#, #), s#*s#, zuf#"),
        ('File "/tmp/hfx-ab12/tree/modeling_x.py", line 231, in f', 'File "modeling_x.py", line #, in f'),
        (r"C:\tree\modeling_x.py:12", "modeling_x.py:#"),
        ("logits: max abs 3.2e-07 > 1e-4", "logits: max abs # > #"),
        ("needs torch 2.13.0+cpu, found 2.1.0rc1 and 5.24.0.dev0", "needs torch #, found # and #"),
        ("<Foo object at 0x7f12ab>", "<Foo object>"),
        ("<function f at 0x7f12ab>", "<function f at address>"),
        ("wrote /tmp/tmpab12cd_e to disk", "wrote tmp to disk"),
        ("commit deadbeef0123456789", "commit hash"),
        ("node view_3 of add_12", "node view of add"),
        ("grid_sampler_2d in layers.3.mlp", "grid_sampler_#d in layers.#.mlp"),
        ("needs v5.24.0 on python3.11", "needs v# on python#"),
        ("on cuda:1 and cpu", "on cuda and cpu"),
        ("id 3f2504e0-4f89-11d3-9a0c-0305e82c3301", "id hash"),
        ("at 00007F8A1B2C3D4E", "at hash"),
        ("in '/home/A User/zoo/modeling_x.py'", "in 'modeling_x.py'"),
        ("got tensor([[1.5, -2.0],\n        [0.1, 3.0]], device='cuda:0')", "got tensor"),
        ("Missing: {'aten::b', 'aten::a'}", "Missing: {'aten::a', 'aten::b'}"),
        ("{'b': (1, 2), 'a': {'d': 1, 'c': 2}}", "{'a': {'c': #, 'd': #}, 'b': (#, #)}"),
        ("{'x, y', 'a'}", "{'a', 'x, y'}"),
        ("it doesn't have {b, a}", "it doesn't have {a, b}"),
        ("} {} {a", "} {} {"),
        ("float16 and float32 in Qwen2Model", "float16 and float32 in Qwen2Model"),
        ("aten::add.Tensor\n\t is missing", "aten::add.Tensor is missing"),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


def failing(message: str = "Eq(u0, 1)", **changes: object) -> Outcome:
    fields = {"kind": "error", "stage": "trace", "error_type": "GuardError", "message": message} | changes
    return Outcome.model_validate(fields)


def test_a_rerun_elsewhere_has_the_same_signature() -> None:
    first = failing(
        "Eq(u0, 1) in /tmp/a/base/modeling_x.py:12",
        location=Location(file="src/modeling_x.py", line=12, function="forward"),
        seconds=1.5,
    )
    second = failing(
        "Eq(u7, 1) in /srv/other/modeling_x.py:19",
        location=Location(file="modeling_x.py", line=19, function="forward"),
        seconds=9.0,
    )
    assert signature(first) == signature(second)
    assert signature(first) == "error | trace | GuardError | Eq(u#, #) in modeling_x.py:# | modeling_x.py:forward"


@pytest.mark.parametrize(
    "other",
    [
        failing(kind="crash"),
        failing(stage="run"),
        failing(error_type="ValueError"),
        failing("Ne(u0, 1)"),
        failing(location=Location(file="modeling_x.py", line=3, function="forward")),
    ],
)
def test_another_failure_has_another_signature(other: Outcome) -> None:
    assert signature(other) != signature(failing())


def test_only_the_first_lines_of_a_message_count() -> None:
    listing = "\n\ngraph():\n    %a = view(%x)"
    assert signature(failing("one\ntwo\nthree" + listing)) == signature(failing("one\n\ntwo\nthree\nfour"))


def test_a_pass_has_none_and_an_unavailable_case_names_its_cause() -> None:
    assert signature(Outcome(kind=OutcomeKind.PASS)) == ""
    missing = Outcome(kind=OutcomeKind.UNAVAILABLE, cause=UnavailableCause.MISSING_LIBRARY)
    assert "missing library" in signature(missing)


@pytest.mark.parametrize("unit", ["a", "a/", "0", "_", " ", "1.", "tmp-", "a.-+", "\x1b[", "\u2028", "é/"])
def test_hostile_messages_take_no_time(unit: str) -> None:
    start = time.perf_counter()
    assert len(signature(failing((unit * 8000)[:8000]))) < 600
    assert time.perf_counter() - start < 0.5


PAIRS = {
    "a branch": (
        "Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none)\n\n"
        'File "/tmp/hfexport-8f2k1_ab/tree/models/modeling_tiny.py", line 31, in forward',
        "Could not guard on data-dependent expression Eq(u12, 1) (unhinted: Eq(u12, 1)).  (Size-like symbols: none)\n\n"
        'File "/home/runner/work/zoo/zoo/models/modeling_tiny.py", line 35, in forward',
    ),
    "a guard on sizes": (
        "Guard failed: s77 <= 64 (s77 = args[0].size()[1]), 8*s27 + 1",
        "Guard failed: s3 <= 128 (s3 = args[0].size()[1]), 8*s0 + 1",
    ),
    "kernels that are missing": (
        "Missing out variants: {'aten::alias', 'aten::bernoulli', 'aten::view_copy'}",
        "Missing out variants: {'aten::view_copy', 'aten::alias', 'aten::bernoulli'}",
    ),
    "a mode": (
        "Current active mode <torch.fx.proxy_tensor.ProxyTorchDispatchMode object at 0x7fb877134b80> not registered",
        "Current active mode <torch.fx.proxy_tensor.ProxyTorchDispatchMode object at 0x7f0011223344> not registered",
    ),
    "a node": (
        "Failed to create multiply node 266 with code: xnn_status_invalid_parameter",
        "Failed to create multiply node 31 with code: xnn_status_invalid_parameter",
    ),
    "another node": (
        "Exception encountered when translating node view. See above",
        "Exception encountered when translating node view_17. See above",
    ),
    "a runtime": (
        "1 : FAIL : Load model from /tmp/tmpk3j2h1_x/model.onnx failed:Type Error in node (node_Add_5)",
        "1 : FAIL : Load model from /var/folders/x1/tmpabcdefgh/model.onnx failed:Type Error in node (node_Add_112)",
    ),
    "versions": (
        "transformers 5.24.0 needs torch>=2.4, found 2.1.0+cu121 on cuda:0 (python3.11)",
        "transformers 5.25.0.dev0 needs torch>=2.5, found 2.3.1+cpu on cuda:3 (python3.12)",
    ),
    "numbers": (
        "logits: 12 of 96 elements differ by up to 0.031 (relative 2.4e-02)",
        "logits: 14 of 96 elements differ by up to 0.0309 (relative 1e-1)",
    ),
    "values": (
        "mask must be boolean, got tensor([1., 0.], device='cuda:0')",
        "mask must be boolean, got tensor([[0.5000, 1.0000],\n        [0.0000, 0.1250]])",
    ),
    "arguments": (
        "unexpected keyword arguments {'use_cache': False, 'input_ids': tensor([[1, 2]])}",
        "unexpected keyword arguments {'input_ids': tensor([[7, 7, 7]]), 'use_cache': False}",
    ),
    "Windows": (
        "cannot open C:\\Users\\a b\\zoo\\weights.bin: file 'C:\\Users\\a b\\zoo\\weights.bin'",
        "cannot open D:\\Users\\a b\\weights.bin: file 'D:\\weights of mine\\weights.bin'",
    ),
    "a long set, cut off": (
        "unknown operators {"
        + ", ".join(f"'custom::op{letter * 40}'" for letter in "abcdefghijklmnopqrstuvwxyz" * 2)
        + "}",
        "unknown operators {"
        + ", ".join(f"'custom::op{letter * 40}'" for letter in "zyxwvutsrqponmlkjihgfedcba" * 2)
        + "}",
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_messages_of_one_cause_have_one_signature(name: str) -> None:
    first, second = PAIRS[name]
    assert first != second
    assert signature(failing(first)) == signature(failing(second))


def test_messages_of_different_causes_have_different_signatures() -> None:
    signatures = [signature(failing(first)) for first, _ in PAIRS.values()]
    assert len(set(signatures)) == len(signatures)


# -- Whatever comes in -----------------------------------------------------------------------------------------

_WORDS = st.sampled_from(
    [
        "guard",
        "aten.view",
        "modeling_x",
        "Qwen2Model",
        "float16",
        "expected",
        "don't",
        "==",
        "(",
        ")",
        "[",
        ",",
        "'",
        "\n",
    ]
)
_TEXTS = st.lists(_WORDS, max_size=25).map(" ".join)


@dataclass(frozen=True)
class Somewhere:
    """A machine, and a run on it."""

    folder: str
    address: int
    symbol: int
    number: int
    version: str
    swapped: bool

    def say(self, words: str) -> str:
        names = ["'a.weight'", "'b.weight'", "'c': {'d', 'e'}"]
        listed = ", ".join(reversed(names) if self.swapped else names)
        return (
            f'{words} at File "{self.folder}/modeling_x.py", line {self.number}: <X object at {self.address:#x}> '
            f"Eq(u{self.symbol}, 1) view_{self.number} torch {self.version} cuda:{self.number} {{{listed}}}"
        )


_PLACES = st.builds(
    Somewhere,
    folder=st.sampled_from(["/tmp/tmpab12cd_e", "/home/a/zoo", "C:/x", "/srv/a-b/c.d", "./models", "/opt/A B/x"]),
    address=st.integers(1 << 20, 1 << 47),
    symbol=st.integers(0, 999),
    number=st.integers(1, 99_999),
    version=st.sampled_from(["2.13.0", "2.1.0+cu121", "2.4.0rc1", "3.0.0.dev20261130"]),
    swapped=st.booleans(),
)


@given(_TEXTS, _PLACES, _PLACES)
@settings(max_examples=150)
def test_where_and_when_a_failure_happens_does_not_show(words: str, here: Somewhere, there: Somewhere) -> None:
    assert signature(failing(here.say(words))) == signature(failing(there.say(words)))


@given(st.text(max_size=300) | _TEXTS)
@settings(max_examples=200)
def test_a_signature_is_one_line_that_stays_as_it_is(text: str) -> None:
    once = normalise(text)
    assert len(once.splitlines()) <= 1
    assert normalise(once) == once
