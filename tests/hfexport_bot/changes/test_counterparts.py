from __future__ import annotations

from hfexport_bot.changes.counterparts import Place, editable
from hfexport_bot.changes.tree import MappingTree

MODELS = "src/transformers/models"
HEADER = "#  This file was automatically generated from src/transformers/models/new/modular_new.py.\n"
MODULAR = f"{MODELS}/new/modular_new.py"
GENERATED = f"{MODELS}/new/modeling_new.py"
OLD = f"{MODELS}/old/modeling_old.py"

#: In the old model, the new one's modular file, and what is generated from that.
OLD_SOURCE = """
class OldNorm(nn.Module):
    def forward(self, x):
        x = OldScale(x)
        return x


class OldAttention(nn.Module):
    def forward(self, x):
        x = x + 1
        x = x + 1
        return x
"""
MODULAR_SOURCE = """from ..old.modeling_old import OldNorm


class NewNorm(OldNorm):
    pass


class NewAttention(OldAttention):
    def forward(self, x):
        x = x + 1
        x = super().forward(x)
        x = x + 1
        return x
"""
GENERATED_SOURCE = f"""{HEADER}
class NewNorm(nn.Module):
    def forward(self, x):
        x = NewScale(x)
        return x


class NewAttention(nn.Module):
    def forward(self, x):
        x = x + 1
        x = spliced(x)
        x = x + 1
        return x
"""
TREE = MappingTree({OLD: OLD_SOURCE, MODULAR: MODULAR_SOURCE, GENERATED: GENERATED_SOURCE})


def line(source: str, text: str, nth: int = 1) -> int:
    return [number for number, each in enumerate(source.splitlines(), 1) if text in each][nth - 1]


def test_the_same_statement_of_the_modular_file() -> None:
    for nth in (1, 2):
        found = editable(TREE, GENERATED, line(GENERATED_SOURCE, "x + 1", nth))
        assert found == Place(MODULAR, line(MODULAR_SOURCE, "x + 1", nth), "NewAttention.forward")


def test_what_the_modular_file_does_not_have_leads_to_its_functions_header() -> None:
    found = editable(TREE, GENERATED, line(GENERATED_SOURCE, "spliced"))
    assert found == Place(MODULAR, line(MODULAR_SOURCE, "def forward"), "NewAttention.forward", exact=False)


def test_an_inherited_method_leads_to_the_other_models_file() -> None:
    found = editable(TREE, GENERATED, line(GENERATED_SOURCE, "NewScale"))
    assert found == Place(OLD, line(OLD_SOURCE, "OldScale"), "OldNorm.forward")


def test_an_inherited_method_that_cannot_be_followed_leads_to_the_class() -> None:
    tree = MappingTree({MODULAR: MODULAR_SOURCE, GENERATED: GENERATED_SOURCE})
    found = editable(tree, GENERATED, line(GENERATED_SOURCE, "NewScale"))
    assert found == Place(MODULAR, line(MODULAR_SOURCE, "class NewNorm"), "NewNorm", exact=False)


COPIES = """
# Copied from transformers.models.old.modeling_old.OldAttention with Old->Copy
class CopyAttention(nn.Module):
    def forward(self, x):
        x = x + 1
        x = x + 1
        return x


class CopyNorm(nn.Module):
    # Copied from transformers.models.old.modeling_old.OldNorm.forward
    def forward(self, x):
        x = CopyScale(x)
        return x

    def own(self, x):
        return x
"""


def test_a_copy_leads_to_what_it_was_copied_from() -> None:
    path = f"{MODELS}/copy/modeling_copy.py"
    tree = MappingTree({OLD: OLD_SOURCE, path: COPIES})
    assert editable(tree, path, line(COPIES, "x + 1", 2)) == Place(
        OLD, line(OLD_SOURCE, "x + 1", 2), "OldAttention.forward"
    )
    assert editable(tree, path, line(COPIES, "return x", 2)) == Place(
        OLD, line(OLD_SOURCE, "return x", 1), "OldNorm.forward"
    )
    assert editable(tree, path, line(COPIES, "return x", 3)) is None  # no copy


def test_what_is_written_where_it_stands_has_no_other_place() -> None:
    assert editable(TREE, OLD, line(OLD_SOURCE, "OldScale")) is None
    assert editable(TREE, "gone.py", 3) is None
    broken = MappingTree({"modeling_x.py": HEADER + "def f(:\n"})
    assert editable(broken, "modeling_x.py", 2) is None


def test_origins_that_lead_in_a_circle_end() -> None:
    circle = "# Copied from transformers.models.old.modeling_old.f\ndef f(x):\n    return x\n"
    found = editable(MappingTree({OLD: circle}), OLD, 3)
    assert found == Place(OLD, 3, "f")
