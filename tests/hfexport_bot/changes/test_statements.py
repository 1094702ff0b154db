from __future__ import annotations

import pytest

from hfexport_bot.changes.modeling import SourceError
from hfexport_bot.changes.statements import statement_at, statements

SOURCE = '''"""Text."""
import torch

LIMIT = 3


class Model:
    """Text."""

    size: int
    width = 4

    def forward(
        self, x
    ):
        """Text."""
        # a comment
        y = torch.add(
            x,
            1,
        )
        if (
            y is None
        ):
            return x
        else:
            pass

        def inner(z):
            return z

        with torch.no_grad():
            try:
                y = inner(y)
            except ValueError:
                raise
            finally:
                global done
        return y
'''


def test_what_runs_has_lines_and_what_declares_has_none() -> None:
    found = [(s.first, s.last, s.function, s.at_import) for s in statements(SOURCE.encode())]
    forward = "Model.forward"
    assert found == [
        (2, 2, "", True),
        (4, 4, "", True),
        (11, 11, "Model", True),
        (18, 21, forward, False),
        (22, 24, forward, False),
        (25, 25, forward, False),
        (30, 30, "Model.forward.inner", False),
        (32, 32, forward, False),
        (34, 34, forward, False),
        (36, 36, forward, False),
        (39, 39, forward, False),
    ]


def test_a_line_belongs_to_the_statement_around_it() -> None:
    found = statements(SOURCE.encode())
    inside = statement_at(found, 20)
    assert inside is not None
    assert inside.first == 18
    assert inside.touches({21})
    assert not inside.touches({22})
    assert statement_at(found, 17) is None  # a comment
    assert statement_at(found, 13) is None  # a header


def test_code_for_type_checkers_never_runs() -> None:
    source = b"if typing.TYPE_CHECKING:\n    import a\nelse:\n    a = None\n"
    assert [each.first for each in statements(source)] == [1, 4]


def test_match_has_its_cases() -> None:
    source = b"def f(x):\n    match x:\n        case 1:\n            y = 2\n        case _:\n            y = 3\n"
    assert [(each.first, each.last) for each in statements(source)] == [(2, 3), (4, 4), (6, 6)]


def test_what_is_no_python_is_refused() -> None:
    with pytest.raises(SourceError):
        statements(b"def f(:\n")
