"""Judge a head that is equal to its base, over and over: every verdict should be ok, known or unchanged.

    python benchmarks/unchanged.py CHECKOUT --out DIR [--rounds 3] [--cases 200] [--jobs 2]

CHECKOUT is a git repository of transformers, which is not modified. The cases are the first ones of ``unchanged.txt``,
in pieces: ``DIR`` keeps a report for each round and piece, and what is there is not run again, so that a run may be
stopped and taken up. A table tells how often each verdict came in each round, what it took, and every other verdict
with its case. Exits with 1 for any of those, and with 3 where a piece gave no report.

Where graphs are the same, base ends after its trace and has head's outcome. With ``--whole`` head has another comment
in its exporters and in its file of workarounds: nothing is known from the other side then, both run to their end, and
what they come to is compared. ``--plant FILE OLD NEW`` (say a constant of one model) changes head's code, to see that
the comparison sees it: exits with 1 where all is unchanged.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hfexport_bot.schema import CaseId, CaseReport, Report, VerdictKind
from hfexport_bot.shards import Plan, read_plan

EXPECTED = {VerdictKind.OK, VerdictKind.KNOWN, VerdictKind.UNCHANGED}
CASES = Path(__file__).with_suffix(".txt")
#: Cases of a piece, which are lost where a run is stopped.
PIECE = 40

_BOT = (sys.executable, "-m", "hfexport_bot")
#: What the cases differ in; the plan has all of it, and those that are wanted are picked.
_EVERY = {
    "backend": ("dynamo", "onnx", "executorch"),
    "shapes": ("dynamic", "static"),
    "task": ("forward", "generate"),
    "engine": ("both",),
    "variant": ("cache", "eager_attention"),
    "max-models": ("0",),
    "budget-minutes": ("0",),
}
_EXPORTERS = "src/transformers/exporters/__init__.py"
_SETTINGS, _WORKAROUNDS = ".github/hfexport.yml", "export_workarounds.py"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--revision", default="HEAD")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", type=int, default=200, help="so many of the list")
    parser.add_argument("--only", default="", metavar="TEXT", help="those of the list with this in their id")
    parser.add_argument("--jobs", type=int, default=None, help="cases at the same time")
    parser.add_argument("--whole", action="store_true", help="let nothing be known from the other side")
    parser.add_argument("--plant", nargs=3, metavar=("FILE", "OLD", "NEW"), help="change head's code")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [line for line in CASES.read_text().split() if given.only in line][: given.cases]
    plan = make_plan(given.checkout, given.revision, given.out, wanted, whole=given.whole, planted=given.plant)
    rounds = [run_round(given.out, number + 1, plan, given.jobs) for number in range(given.rounds)]
    for line in table(rounds):
        print(line)
    others = [(number, case) for number, round_ in enumerate(rounds, 1) for case in round_.cases if is_other(case)]
    for number, case in others:
        print(f"round {number}: {case.id}: {case.verdict.value} {list(case.details)} {case.message[:300]!r}")
    if any(len(round_.cases) < len(plan.cases) for round_ in rounds):
        return 3
    if given.plant:
        return int(all(case.verdict is VerdictKind.UNCHANGED for round_ in rounds for case in round_.cases))
    return int(bool(others))


def is_other(case: CaseReport) -> bool:
    """Whether a case says that something changed: its verdict, or eager's outputs."""
    return case.verdict not in EXPECTED or (case.eager is not None and bool(case.eager.moved or case.eager.problem))


def make_plan(
    checkout: Path, revision: str, out: Path, wanted: Sequence[str], *, whole: bool, planted: Sequence[str] | None
) -> Plan:
    """What to run, in pieces; the one of an earlier start where there is one."""
    file, repository = out / "plan.json", out / "repository"
    if file.exists():
        return read_plan(file)
    if not repository.exists():
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", checkout, repository], check=True)
    base = head = _git(checkout, "rev-parse", revision).strip()
    if whole:
        base = _commit(repository, base, {_SETTINGS: f"workarounds: {_WORKAROUNDS}\n", _WORKAROUNDS: "# of base\n"})
        exporters = _git(repository, "show", f"{base}:{_EXPORTERS}")
        head = _commit(repository, base, {_WORKAROUNDS: "# of head\n", _EXPORTERS: f"{exporters}\n# of head\n"})
    if planted:
        path, old, new = planted
        before = _git(repository, "show", f"{head}:{path}")
        if old not in before:
            raise SystemExit(f"{path} has no {old!r}")
        head = _commit(repository, head, {path: before.replace(old, new)})
    models = dict.fromkeys("/".join(case.split("/")[:2]) for case in wanted)
    options = [word for name, values in _EVERY.items() for value in values for word in (f"--{name}", value)]
    options += [word for model in models for word in ("--model", model)]
    revisions = ("--repo", str(repository), "--base", base, "--head", head)
    every = out / "every.json"
    subprocess.run([*_BOT, "plan", *revisions, *options, "--out", str(every), "-q"], check=True)
    plan = read_plan(every)
    known = {str(case.id): case for case in plan.cases}
    if missing := [case for case in wanted if case not in known]:
        raise SystemExit(f"this checkout has no such cases: {', '.join(missing)}")
    ids = [CaseId.parse(case) for case in wanted]
    pieces = tuple(tuple(ids[start : start + PIECE]) for start in range(0, len(ids), PIECE))
    plan = plan.model_copy(update={"cases": tuple(known[case] for case in wanted), "shards": pieces})
    file.write_text(plan.dump())
    return plan


@dataclass
class Round:
    """The cases of a round, and the CPU seconds that they took with all around them."""

    cases: list[CaseReport]
    seconds: float = 0.0


def run_round(out: Path, number: int, plan: Plan, jobs: int | None) -> Round:
    """Run what is not there yet of a round."""
    found = Round([])
    for piece in range(1, len(plan.shards) + 1):
        folder = out / f"round-{number}" / f"piece-{piece}"
        report_file, seconds_file = folder / "report.json", folder / "cpu_seconds"
        if not seconds_file.exists():  # the last to be written
            command = [*_BOT, "run", "--repo", str(out / "repository"), "--plan", str(out / "plan.json")]
            command += ["--shard", f"{piece}/{len(plan.shards)}", "--out", str(folder), "-q"]
            before = _children_seconds()
            subprocess.run([*command, *(("--jobs", str(jobs)) if jobs else ())], check=False)
            if not report_file.exists():
                print(f"round {number}, piece {piece}: no report")
                continue
            seconds_file.write_text(str(_children_seconds() - before))
        report = Report.model_validate_json(report_file.read_text())
        if report.failure:
            print(f"round {number}, piece {piece}: {report.failure}")
        found.cases += report.cases
        found.seconds += float(seconds_file.read_text())
        print(f"round {number}, piece {piece} of {len(plan.shards)}: {_verdicts(report.cases)}", flush=True)
    return found


def table(rounds: Sequence[Round]) -> Iterator[str]:
    """A line for each round. The share is that of base's seconds in head's, where both ran in this round."""
    yield "Round  Cases  CPU s a case  Base / head  Run again  Verdicts"
    for number, round_ in enumerate(rounds, 1):
        sides = [(case.base.seconds, case.head.seconds) for case in round_.cases if case.base and case.head]
        share = sum(base for base, _ in sides) / (sum(head for _, head in sides) or 1.0)
        again = sum("runs" in detail for case in round_.cases for detail in case.details)
        each = round_.seconds / (len(round_.cases) or 1)
        yield f"{number:5}  {len(round_.cases):5}  {each:12.1f}  {share:11.0%}  {again:9}  {_verdicts(round_.cases)}"


def _verdicts(cases: Sequence[CaseReport]) -> str:
    counted = Counter(case.verdict.value for case in cases)
    return ", ".join(f"{count} {verdict}" for verdict, count in counted.most_common())


def _git(repository: Path, *arguments: str, given: str | None = None) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, input=given).stdout


def _commit(repository: Path, parent: str, files: Mapping[str, str]) -> str:
    """A commit with other files, which touches no work tree."""
    _git(repository, "read-tree", parent)
    for path, text in files.items():
        blob = _git(repository, "hash-object", "-w", "--stdin", given=text).strip()
        _git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
    tree = _git(repository, "write-tree").strip()
    author = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@example.org")
    return _git(repository, *author, "commit-tree", tree, "-p", parent, "-m", "for a comparison").strip()


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
