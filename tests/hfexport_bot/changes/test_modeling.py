"""Reading modeling files by their syntax."""

from __future__ import annotations

import textwrap
import warnings

import pytest

from hfexport_bot.changes.modeling import (
    SourceError,
    generating_classes,
    model_classes,
    parse,
    public_model_classes,
)
from hfexport_bot.changes.symbols import compare


def classes(source: str) -> tuple[str, ...]:
    return model_classes(parse(textwrap.dedent(source).encode()))


def test_model_classes_are_the_pretrained_ones_with_a_forward() -> None:
    assert classes(
        """
        class ToyAttention(nn.Module):
            def forward(self, x): return x
        class ToyLayer(GradientCheckpointingLayer):
            def forward(self, x): return x
        class ToyPreTrainedModel(PreTrainedModel):
            def forward(self, x): return x
        class ToyOutput(ModelOutput):
            loss = None
        class ToyModel(ToyPreTrainedModel):
            def forward(self, x): return x
        class ToyForCausalLM(ToyPreTrainedModel, GenerationMixin):
            def forward(self, x): return x
        class _ToyHelperModel(ToyPreTrainedModel):
            def forward(self, x): return x
        """
    ) == ("ToyModel", "ToyForCausalLM")


def test_forward_may_be_inherited_within_the_file_or_from_generic_heads() -> None:
    assert classes(
        """
        class ToyPreTrainedModel(transformers.PreTrainedModel): ...
        class ToyModel(ToyPreTrainedModel):
            def forward(self, x): return x
        class ToyOtherModel(ToyModel): ...
        class ToyForSequenceClassification(GenericForSequenceClassification, ToyPreTrainedModel): ...
        class ToyHolder(ToyPreTrainedModel): ...
        """
    ) == ("ToyModel", "ToyOtherModel", "ToyForSequenceClassification")


@pytest.mark.parametrize(
    ("header", "base", "expected"),
    [
        ("from transformers import BertModel", "BertModel", ("Mine",)),
        ("from transformers import LlamaForCausalLM as Base", "Base", ("Mine",)),
        ("import transformers as t", "t.T5ForConditionalGeneration", ("Mine",)),
        ("from .modeling_base import BasePreTrainedModel", "BasePreTrainedModel", ()),  # no forward of its own
        ("from pydantic import BaseModel", "BaseModel", ()),
        ("from torch import nn", "nn.Module", ()),
        ("from x import Helper as BertModel", "BertModel", ()),
    ],
)
def test_imported_bases_count_by_their_original_name(header: str, base: str, expected: tuple[str, ...]) -> None:
    assert classes(f"{header}\nclass Mine({base}):\n    pass\n") == expected


def test_abstract_classes_are_left_out_and_their_children_are_not() -> None:
    assert classes(
        """
        class A(PreTrainedModel):
            def forward(self, x):
                "Children must."
                raise NotImplementedError("children must")
        class B(A): ...
        class C(B):
            forward = other
        class D(PreTrainedModel):
            @abc.abstractmethod
            def head(self): ...
            def forward(self, x): return x
        class E(D):
            def head(self): ...
        """
    ) == ("C", "E")


def test_classes_behind_a_condition_and_circular_bases() -> None:
    assert classes(
        """
        if is_torch_available():
            class A(PreTrainedModel):
                def forward(self): ...
        try:
            import x
        except ImportError:
            class B(PreTrainedModel):
                def forward(self): ...
        class P(Q): ...
        class Q(P): ...
        """
    ) == ("A", "B")


OLD = '''
"""Module text."""
class A(B):
    """Class text."""
    x = 1  # why
    def f(self):
        """Only text."""
    async def g(self):
        return 1
'''


@pytest.mark.parametrize(
    ("new", "same"),
    [
        (OLD, True),
        (OLD.replace("text", "prose").replace("# why", "# another reason"), True),
        (OLD.replace('"""Module text."""', ""), True),
        (OLD.replace("    x = 1", "\n\n    x = (1)"), True),
        (OLD.replace("x = 1", "x = 2"), False),
        (OLD.replace("return 1", 'return "Only text."'), False),
        (OLD + "def broken(", False),
    ],
)
def test_a_comparison_sees_through_text_and_layout_only(new: str, same: bool) -> None:
    assert (not compare("modeling_a.py", OLD.encode(), new.encode()).symbols) is same


def test_syntax_error_has_its_line() -> None:
    with pytest.raises(SourceError) as caught:
        parse(b"x = 1\n\ndef f(:\n")
    assert caught.value.line == 3


@pytest.mark.parametrize("source", [b"x = '\x00'", b"# coding: nonsense\nx = 1", b"x = '\xff'", b"-" * 200_000 + b"1"])
def test_whatever_is_no_python_is_a_source_error(source: bytes) -> None:
    with pytest.raises(SourceError):
        parse(source)


def test_coding_lines_are_honoured_and_warnings_kept_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse("# coding: latin-1\nx = 'é' + '\\d'".encode("latin-1"))


_TWO_MODELS = """
from transformers import PreTrainedModel
class Stack(PreTrainedModel):
    def forward(self, x): return x
class Model(PreTrainedModel):
    def forward(self, x): return x
"""


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        ("", ("Stack", "Model")),
        ('__all__ = ["Model", "helper"]', ("Model",)),
        ('__all__: list[str] = ["Model"]', ("Model",)),
        ('__all__ = ["Model"]\n__all__ += ("Stack",)', ("Stack", "Model")),
        ('__all__ = ["helper"]', ("Stack", "Model")),
        ("__all__ = names()", ("Stack", "Model")),
    ],
)
def test_the_public_model_classes_are_those_that_the_file_offers(offer: str, expected: tuple[str, ...]) -> None:
    assert public_model_classes(parse((_TWO_MODELS + offer).encode())) == expected


def test_generating_classes_derive_from_the_mixin_or_from_a_generating_import() -> None:
    source = """
        from transformers import GenerationMixin as Mixin, LlamaForCausalLM, LlamaModel
        class ToyPreTrainedModel(PreTrainedModel): ...
        class ToyModel(ToyPreTrainedModel):
            def forward(self, x): return x
        class ToyForCausalLM(ToyPreTrainedModel, Mixin):
            def forward(self, x): return x
        class ToyDoubleHeads(ToyForCausalLM): ...
        class ToyOwn(ToyPreTrainedModel, MusicGenerationMixin):
            def forward(self, x): return x
        class ToyImported(LlamaForCausalLM): ...
        class ToyImportedModel(LlamaModel): ...
        class _Hidden(LlamaForCausalLM): ...
        """
    expected = ("ToyForCausalLM", "ToyDoubleHeads", "ToyOwn", "ToyImported")
    assert generating_classes(parse(textwrap.dedent(source).encode())) == expected


def test_any_number_of_classes_may_derive_from_one_another() -> None:
    first = "class A0Model(GenerationMixin, PreTrainedModel):\n    def forward(self, x): return x\n"
    source = first + "".join(f"class A{n}Model(A{n - 1}Model): pass\n" for n in range(1, 1500))
    module = parse(source.encode())
    assert len(model_classes(module)) == len(generating_classes(module)) == 1500
