"""What the reports of shards come to, put together, and a sweep against an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from hfexport_bot.plan import PlannedCase
from hfexport_bot.reporting.summary import headline
from hfexport_bot.schema import (
    INTERRUPTED,
    Audit,
    AuditedCase,
    Blame,
    CaseId,
    CaseReport,
    Layout,
    Location,
    Need,
    Outcome,
    OutcomeKind,
    Report,
    Revision,
    Unreached,
    Variant,
    VerdictKind,
    WorkaroundAudit,
)
from hfexport_bot.settings import AcceptedEntry, Overrides, SettingsFile, combine
from hfexport_bot.shards import Plan, own_version, pack
from hfexport_bot.verdicts.merging import against, merge_reports

TODAY = date(2026, 11, 30)


def case_id(name: str) -> CaseId:
    return CaseId.parse(f"a/{name}/onnx/dynamic/forward")


def make_plan(names: str, *accepted: AcceptedEntry) -> Plan:
    """A plan with a shard for each class."""
    file = SettingsFile(accepted=accepted)
    cases = tuple(PlannedCase(case_id(name), "b.py", "h.py", f"why {name}") for name in names)
    return Plan(
        version=own_version(),
        command="sweep",
        head=Revision(name="HEAD", sha="a" * 40),
        layout=Layout.MODELING,
        settings=combine(file, file, Overrides()),
        cases=cases,
        shards=pack(cases, {}, max(1, len(names))),
    )


def case(
    id_: CaseId, kind: OutcomeKind = OutcomeKind.PASS, executed: dict[str, tuple[int, ...]] | None = None
) -> CaseReport:
    outcome = Outcome(kind=kind, executed=executed, stage="" if kind is OutcomeKind.PASS else "trace")
    return CaseReport(id=id_, verdict=VerdictKind.NO_BASELINE, outcome=kind, head=outcome)


def of_shard(plan: Plan, number: int, cases: Sequence[CaseReport], **more: object) -> Report:
    shard = plan.shard(number, len(plan.shards))
    return Report.model_validate({"command": "sweep", "head": plan.head, "cases": tuple(cases), "shard": shard, **more})


def test_lines_are_unreached_where_no_shard_reached_them() -> None:
    plan, told = make_plan("ABC"), {"m.py": (1,)}
    left = [((1, 4), (8, 8)), ((3, 9),)]
    reports = [
        of_shard(
            plan,
            number,
            [case(case_id(name), executed=told)],
            unreached=(
                Unreached(file="m.py", function="f", lines=lines),
                Unreached(file="m.py", function=name, lines=((20, 20),)),
            ),
        )
        for number, (name, lines) in enumerate(zip("AB", left, strict=True), 1)
    ]
    cannot_tell = of_shard(plan, 3, [case(case_id("C"))])
    merged = merge_reports(plan, [cannot_tell, *reports])
    assert merged.unreached == (Unreached(file="m.py", function="f", lines=((3, 4), (8, 8))),)
    assert merged.failure == ""


def test_variants_that_a_shard_added_are_its_own() -> None:
    plan = make_plan("AB")
    added = case_id("A").model_copy(update={"variant": Variant.EAGER_ATTENTION})
    reports = [of_shard(plan, 2, [case(case_id("B"))]), of_shard(plan, 1, [case(added), case(case_id("A"))])]
    merged = merge_reports(plan, reports)
    assert [each.id for each in merged.cases] == [case_id("A"), case_id("B"), added]
    assert (merged.failure, merged.not_run) == ("", ())


def test_what_shards_say_is_said_once_and_versions_that_differ_are_both_told() -> None:
    plan = make_plan("AB")
    reports = [
        of_shard(
            plan,
            number,
            [case(case_id(name))],
            notes=("both", name),
            seconds=number,
            versions={"torch": torch, "onnx": "1.23.2"},
        )
        for number, name, torch in ((1, "A", "2.13.0"), (2, "B", "2.12.0"))
    ]
    merged = merge_reports(plan, reports)
    assert merged.notes == ("both", "A", "B")
    assert merged.versions == {"torch": "2.13.0 or 2.12.0", "onnx": "1.23.2"}
    assert merged.seconds == 2


def test_an_interrupted_shard_makes_an_interrupted_run() -> None:
    plan = make_plan("ABC").model_copy(update={"command": "run"})
    broken = case(case_id("A"), OutcomeKind.ERROR).model_copy(update={"verdict": VerdictKind.REGRESSION})
    ended = of_shard(plan, 2, [], failure=INTERRUPTED)
    merged = merge_reports(plan, [of_shard(plan, 1, [broken]), ended])
    assert merged.failure == (
        "the run was interrupted: shard 2 of 3 was interrupted, so 1 case was not run; "
        "shard 3 of 3 gave no report, so 1 case was not run"
    )
    assert [each.reason for each in merged.not_run] == ["shard 2 of 3 was interrupted", "shard 3 of 3 gave no result"]
    assert headline(merged) == "the run was interrupted · 1 regression so far · safe to merge: no"
    failed = merge_reports(plan, [of_shard(plan, 1, [broken]), ended, of_shard(plan, 3, [], failure="no wheels")])
    assert headline(failed) == "the run failed · safe to merge: unknown"
    assert headline(merge_reports(plan, [of_shard(plan, 1, [broken])])) == "the run failed · safe to merge: unknown"


def test_many_missing_shards_are_counted() -> None:
    plan = make_plan("ABCDEFGH")
    failed = of_shard(plan, 1, [], failure="no wheels")
    merged = merge_reports(plan, [failed])
    assert merged.failure.startswith(
        "shard 1 of 8 failed: no wheels; shard 2 of 8 gave no report, so 1 case was not run"
    )
    assert merged.failure.endswith("; and 3 more shards")
    assert len(merged.not_run) == 8


def test_a_sweep_keeps_its_blames_and_knows_what_is_accepted() -> None:
    plan = make_plan("AB", AcceptedEntry(id="a/B/*", reason="not yet"))
    blame = Blame(location=Location(file="m.py", line=3, function="f"))
    failing = [case(case_id(name), OutcomeKind.ERROR).model_copy(update={"blame": blame}) for name in "AB"]
    sweep = merge_reports(plan, [of_shard(plan, number, [each]) for number, each in enumerate(failing, 1)])
    earlier = Revision(name="HEAD", sha="e" * 40)
    baseline = Report(command="sweep", head=earlier, cases=(case(case_id("A")), case(case_id("B"))))
    judged = against(sweep, baseline, plan, TODAY)
    assert [each.verdict for each in judged.cases] == [VerdictKind.REGRESSION, VerdictKind.KNOWN]
    assert [each.blame for each in judged.cases] == [blame, blame]
    assert [each.reason for each in judged.cases] == ["why A", "why B"]
    assert judged.base == earlier
    assert judged.cases[1].details == ("accepted: not yet",)


def test_a_workaround_that_one_shard_needs_is_needed() -> None:
    plan = make_plan("ABC")
    needs = {1: Need.NOT_NEEDED, 2: Need.NEEDED}
    tried = {
        number: AuditedCase(id=case_id("AB"[number - 1]), need=need, outcome=OutcomeKind.PASS, said=need.value)
        for number, need in needs.items()
    }
    reports = [
        of_shard(
            plan,
            number,
            [case(case_id("ABC"[number - 1]))],
            audit=Audit(
                revision=plan.head,
                workarounds=(
                    WorkaroundAudit(id="w", need=needs.get(number, Need.UNKNOWN), said="no case hits it", cases=cases),
                    WorkaroundAudit(id="unhit", need=Need.UNKNOWN, said="no case hits it"),
                ),
                notes=("torch moved",),
                versions={"torch": "2.13"},
            ),
        )
        for number, cases in ((1, (tried[1],)), (2, (tried[2],)), (3, ()))
    ]
    audit = merge_reports(plan, reports).audit
    assert audit is not None
    assert [(each.id, each.need.value, each.said) for each in audit.workarounds] == [
        ("w", "still needed", "a/B/onnx/dynamic/forward: still needed"),
        ("unhit", "cannot tell", "no case hits it"),
    ]
    assert (audit.notes, audit.versions) == (("torch moved",), {"torch": "2.13"})
    assert merge_reports(plan, [of_shard(plan, 1, [case(case_id("A"))])]).audit is None
