"""Each side gets its environment, or the report says what is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from hfexport_bot.changes.requirements import Difference, read_requirements
from hfexport_bot.changes.tree import MappingTree
from hfexport_bot.execution.environments import Environments, prepare_environments
from hfexport_bot.execution.overlay import Overlay, OverlayError
from hfexport_bot.execution.sides import SideName
from hfexport_bot.schema import Layout

INSTALLED = {"transformers": "5.24.0", "numpy": "2.4.6"}
Make = Callable[[Sequence[Difference], Mapping[str, str]], Overlay]


def overlay_of(differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
    """As if pip had found exactly what is wanted."""
    packages = {each.name: each.wanted.removeprefix("==") for each in differences}
    return Overlay(Path("/overlays") / "-".join(packages.values()), packages)


def prepare(install: bool, make: Make = overlay_of, **requirements: str) -> Environments:
    names: tuple[SideName, ...] = ("base", "head")
    wanted = {
        side: read_requirements(MappingTree({"requirements.txt": requirements[side]}), Layout.MODELING)
        for side in names
        if side in requirements
    }
    return prepare_environments(wanted, lambda: INSTALLED, install=install, make_overlay=make)


def test_without_install_one_line_says_what_differs() -> None:
    found = prepare(False, base="numpy", head="transformers==5.23.0\neinops>=0.8")
    assert found == Environments(
        notes=(
            "installed packages differ from the requirements of head (to run with those: --install, or "
            "`install: true`): einops>=0.8 (requirements.txt; not installed); "
            "transformers==5.23.0 (requirements.txt; 5.24.0 is installed)",
        ),
        unmet=("einops>=0.8", "transformers 5.23.0"),
    )


@pytest.mark.parametrize("install", [True, False])
def test_what_only_head_asks_for_and_cannot_be_installed_is_unmet(install: bool) -> None:
    git = "einops @ git+https://example.org/einops"
    found = prepare(install, base="numpy==2.3", head=f"numpy==2.3\n{git}")
    (unmet,) = found.unmet
    assert unmet in [note.removeprefix("head: ") for note in found.notes]
    assert prepare(install, base=f"numpy==2.3\n{git}", head=f"# a comment\nnumpy==2.3\n{git}").unmet == ()
    assert prepare(install, head=git).unmet == (), "no change to judge"
    assert prepare(install, base=git, head="").unmet == ()


def test_both_sides_share_a_line_and_an_overlay() -> None:
    made = []

    def make(differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
        made.append(differences)
        return overlay_of(differences, installed)

    found = prepare(True, make, base="numpy==2.3", head="numpy==2.3")
    assert len(made) == 1
    assert found == Environments(
        {"base": ("/overlays/2.3",), "head": ("/overlays/2.3",)},
        ("base and head ran with numpy 2.3 in place of 2.4.6",),
    )
    (note,) = prepare(False, base="numpy==2.3", head="numpy==2.3").notes
    assert "the requirements of base and head (" in note


def test_each_side_gets_its_own() -> None:
    found = prepare(True, base="numpy==2.3", head="numpy==2.2\neinops==1")
    assert found.search_path == {"base": ("/overlays/2.3",), "head": ("/overlays/1-2.2",)}
    assert found.notes == (
        "base ran with numpy 2.3 in place of 2.4.6",
        "head ran with einops 1, numpy 2.2 in place of 2.4.6",
    )


def test_when_one_cannot_be_made_there_is_nothing_to_run_with() -> None:
    def make(differences: Sequence[Difference], installed: Mapping[str, str]) -> Overlay:
        if differences[0].wanted == "==9":
            raise OverlayError("no such version")
        return overlay_of(differences, installed)

    found = prepare(True, make, base="numpy==2.3", head="numpy==9")
    assert found.search_path == {}
    assert found.failure.startswith("the environment of head could not be made, so nothing was run: no such version; ")
    assert "run without --install" in found.failure


@pytest.mark.parametrize("install", [True, False])
def test_nothing_to_do_is_nothing_to_say(install: bool) -> None:
    assert prepare(install, base="numpy", head="numpy>=2\n# torch==1") == Environments()
    assert prepare(install, head="") == Environments()


def test_what_could_not_be_read_is_noted_with_its_side() -> None:
    assert prepare(True, base="numpy", head="=").notes == (
        "head: requirements.txt line 1: '=' is no requirement such as `torch>=2.6`; it was passed over",
    )
    assert prepare(True, head="=").notes[0].startswith("the revision: requirements.txt line 1: ")


def test_long_lists_are_cut_and_counted() -> None:
    (note,) = prepare(False, head="\n".join(f"p{number}" for number in range(8))).notes
    assert note.endswith("p4 (requirements.txt; not installed); and 3 more")
    (note,) = prepare(True, head="\n".join(f"p{number}==1" for number in range(8))).notes
    assert note == "the revision ran with p0 1, p1 1, p2 1, p3 1, p4 1 and 3 more packages"
