"""The settings file and the command line, settled into one object."""

from __future__ import annotations

from datetime import date

import pytest

from hfexport_bot.errors import UsageError
from hfexport_bot.schema import Backend, Shapes, Task, VerdictKind
from hfexport_bot.settings import (
    SETTINGS_PATH,
    AcceptedEntry,
    Overrides,
    SettingsFile,
    combine,
    concerning,
    in_force,
    postponed,
    read_both,
    read_settings,
)


def read(text: str | bytes, **files: str) -> SettingsFile:
    sources = {SETTINGS_PATH: text if isinstance(text, bytes) else text.encode()}
    sources |= {name.replace("__", "/") + ".py": source.encode() for name, source in files.items()}
    return read_settings(sources.get, "head")


FULL = """
cases: ci/cases.py:build
workarounds: ci/fixes.py
fail-on: [regression, changed]
accepted:
  - id: "big/*/executorch/*"
    reason: too big
    expires: 2026-03-01
limits: {seconds: 60, cpu-seconds: 90, memory-gb: 2}
drift: {error-factor: 3, bytes: 0.5}
seed: 7
backends: [onnx]
shapes: [static, dynamic]
tasks: [generate]
"""


def test_every_key() -> None:
    file = read(FULL, ci__cases="", ci__fixes="")
    settings = combine(file, file, Overrides())
    assert settings.fail_on == (VerdictKind.REGRESSION, VerdictKind.CHANGED)
    assert settings.accepted == (AcceptedEntry(id="big/*/executorch/*", reason="too big", expires=date(2026, 3, 1)),)
    assert (settings.limits.wall_seconds, settings.limits.cpu_seconds) == (60, 90)
    assert settings.limits.memory_bytes == 2 << 30
    assert (settings.drift.error_factor, settings.drift.bytes, settings.drift.nodes) == (3, 0.5, 0.1)
    assert settings.seed == 7
    assert settings.backends == (Backend.ONNX,)
    assert settings.shapes == (Shapes.STATIC, Shapes.DYNAMIC)
    assert settings.tasks == (Task.GENERATE,)
    assert settings.head_hooks.cases == "ci/cases.py:build"
    assert settings.head_hooks.workarounds == "ci/fixes.py"


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_an_empty_file_is_all_defaults(text: str) -> None:
    settings = combine(read(text), read(text), Overrides())
    assert settings.fail_on == (VerdictKind.REGRESSION,)
    assert settings.backends == tuple(Backend)
    assert settings.shapes == (Shapes.DYNAMIC,)
    assert settings.tasks == (Task.FORWARD,)
    assert settings.limits.wall_seconds == 300


def test_no_file_is_all_defaults() -> None:
    assert read_settings({}.get, "head") == SettingsFile()


def test_gates_come_from_base_and_hooks_from_each_revision() -> None:
    base = read("fail-on: [regression]\ncases: a.py:old\nbackends: [dynamo]", a="")
    head = read("fail-on: []\ncases: a.py:new\nlimits: {seconds: 1}\naccepted: [{id: '*', reason: all}]", a="")
    settings = combine(base, head, Overrides())
    assert settings.fail_on == (VerdictKind.REGRESSION,)
    assert settings.accepted == ()
    assert settings.limits.wall_seconds == 300
    assert settings.backends == (Backend.DYNAMO,)
    assert settings.base_hooks.cases == "a.py:old"
    assert settings.head_hooks.cases == "a.py:new"
    assert postponed(base, head) == ("fail-on", "accepted", "limits", "backends")
    assert postponed(base, base) == ()


def test_what_is_installed_and_fetched_is_bases_decision() -> None:
    base = read("install: true\ncheckpoints: {BertModel: a/b, llama: c@v1.0}\nallow-hub: true")
    head = read("checkpoints: {BertModel: evil/b}")
    settings = combine(base, head, Overrides())
    assert (settings.install, settings.allow_hub) == (True, True)
    assert settings.checkpoints == {"BertModel": "a/b", "llama": "c@v1.0"}
    assert postponed(base, head) == ("install", "allow-hub", "checkpoints")
    other_way = combine(head, base, Overrides())
    assert (other_way.install, other_way.allow_hub) == (False, False)
    assert combine(head, base, Overrides(install=True)).install


def test_the_command_line_outranks_the_file() -> None:
    file = read("limits: {seconds: 60, memory-gb: 2}\nbackends: [onnx]\nfail-on: [drift]")
    overrides = Overrides(
        backends=(Backend.DYNAMO,),
        shapes=(Shapes.STATIC,),
        tasks=(Task.GENERATE,),
        fail_on=(VerdictKind.NEW,),
        seconds=30,
        memory_gb=0.5,
        disabled_workarounds=("x",),
    )
    settings = combine(file, file, overrides)
    assert settings.backends == (Backend.DYNAMO,)
    assert settings.shapes == (Shapes.STATIC,)
    assert settings.tasks == (Task.GENERATE,)
    assert settings.fail_on == (VerdictKind.NEW,)
    assert (settings.limits.wall_seconds, settings.limits.memory_bytes) == (30, 1 << 29)
    assert settings.limits.cpu_seconds == 60
    assert settings.disabled_workarounds == ("x",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("failon: []", "unknown key 'failon'; did you mean 'fail-on'?"),
        ("fail_on: []", "unknown key 'fail_on'; did you mean 'fail-on'?"),
        ("limits: {second: 1}", "unknown key 'limits.second'; did you mean 'seconds'?"),
        ("accepted: [{id: a, reson: b}]", "accepted.0.reason: field required"),
        ("accepted: [{id: a, reason: b, expire: 2026-01-01}]", "did you mean 'expires'?"),
        ("accepted: [{id: a, reason: '  '}]", "accepted.0.reason"),
        ("accepted: [{id: a, reason: b, expires: soon}]", "accepted.0.expires"),
        ("fail-on: [regresion]", "'regression'"),
        ("fail-on: regression", "fail-on: must be a list, such as "),
        ("backends: []", "backends: must not be empty"),
        ("limits: 3", "limits: must be a mapping"),
        ("checkpoints: [a]", "checkpoints: must be a mapping"),
        ("limits: {seconds: 0}", "limits.seconds: "),
        ("limits: {memory-gb: .inf}", "limits.memory-gb: "),
        ("seed: -1", "seed: "),
        ("install: maybe", "install: "),
        (
            "checkpoints: {BertModel: 'https://host/a/b'}",
            "checkpoints.BertModel: 'https://host/a/b' is not a repository of the hub, such as ",
        ),
        ("checkpoints: {BertModel: ../x}", "checkpoints.BertModel: "),
        (
            "cases: build",
            "cases: 'build' is not the path of a Python file from the root and a function in it, such as ",
        ),
        ("workarounds: a.txt", "workarounds: 'a.txt' is not the path of a Python file from the root, such as "),
        ("cases: /etc/x.py:f", "cases: "),
        ("cases: a/../../x.py:f", "cases: a/../../x.py is not in that revision"),
        ("cases: missing.py:f", "cases: missing.py is not in that revision"),
        ("workarounds: missing.py", "workarounds: missing.py is not in that revision"),
        ("- a", "must be a mapping"),
        ("a: [", "is no YAML"),
        ("a: !!python/object:os.system x", "is no YAML"),
        (b"\xff\xfe\x00", "is no YAML"),
        ("[" * 500, "is no YAML"),
        ("#" * (1 << 19), "longer than 64 KiB"),
    ],
)
def test_bad_files_are_one_clear_line(text: str | bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    said = str(caught.value)
    assert message in said
    assert said.startswith(f"{SETTINGS_PATH} (head)")
    assert "\n" not in said
    assert "pattern" not in said


def test_accepted_findings_last_through_their_last_day() -> None:
    always = AcceptedEntry(id="a", reason="r")
    until = AcceptedEntry(id="b", reason="r", expires=date(2026, 3, 1))
    assert in_force((always, until), date(2026, 3, 1)) == ((always, until), ())
    assert in_force((always, until), date(2026, 3, 2)) == ((always,), (until,))


def test_the_file_may_be_elsewhere() -> None:
    files = {"tools/export.yml": b"reruns: 1", SETTINGS_PATH: b"reruns: 5"}
    names = ("base", "head")
    base, head, _ = read_both(files.get, {}.get, names, "tools/export.yml")
    assert (base.reruns, head.reruns) == (1, 2)
    assert read_both({}.get, {}.get, names, SETTINGS_PATH) == (SettingsFile(), SettingsFile(), ())
    with pytest.raises(UsageError, match=r"--settings: there is no tools/other\.yml in base or in head"):
        read_both(files.get, files.get, names, "tools/other.yml")


def test_settings_of_base_that_cannot_be_read_do_not_block_the_change_that_corrects_them() -> None:
    names = "base, 1", "head, 2"
    wrong = {SETTINGS_PATH: b"taks: [generate]\naccepted: [{id: a/AModel/forward/onnx/static, reason: old}]\n"}
    right = {SETTINGS_PATH: b"accepted: [{id: a/AModel/forward/onnx/static, reason: new}]\nallow-hub: true\n"}
    both = read_both(wrong.get, right.get, names, SETTINGS_PATH)
    settled = combine(both.base, both.head, Overrides())
    assert (settled.accepted, settled.allow_hub) == ((), False)
    assert both.notes[0].startswith(f"the base's settings cannot be read: {SETTINGS_PATH} (base, 1): ")
    assert "can be read again" in concerning(read_both(wrong.get, {}.get, names, SETTINGS_PATH)).postponed
    with pytest.raises(UsageError, match="head, 2"):
        read_both(right.get, wrong.get, names, SETTINGS_PATH)
