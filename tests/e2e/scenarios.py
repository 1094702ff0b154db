"""What is tried end to end: each workflow to copy, by the event it is for, on the demo's pull request."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from examples.demo.run_demo import BACKENDS, build_repository, commit, differences
from hfexport_bot.schema import Report
from tests.e2e.picture import photograph
from tests.e2e.store import Store
from tests.e2e.workflows import Act
from tests.e2e.world import FORK, NUMBER, World, git
from tests.hfexport_bot.github.server import REPOSITORY, GitHub
from tests.hfexport_bot.test_hostile import ATTACKS, Place, require_nothing_stolen

READS, WRITES = "a-token-that-may-only-read", "a-token-that-may-write"
HEADLINE = "Export check: 4 regressions in 2 causes"
#: The demo on one backend, which most scenarios can do with, and what is found then.
ONE_BACKEND, SHORT_HEADLINE = "dynamo", "Export check: 1 regression"


@dataclass
class Stage:
    """What a scenario has to work with, and what it found ``wrong``."""

    act: Act
    github: GitHub
    store: Store
    world: World
    work: Path
    wrong: list[str] = field(default_factory=list)

    def expect(self, what: str, holds: bool, found: object = "") -> None:
        said = f"{what}{'' if holds else f'; found {found}'}"
        print(f"{'ok' if holds else 'WRONG'}: {said}", flush=True)
        if not holds:
            self.wrong.append(said)

    def report(self, artifact: str) -> Any:
        """A report among the artifacts, as JSON; one without anything where it is not there."""
        return json.loads(self.store.files.get(f"{artifact}/report.json", b'{"cases": [], "not_run": []}'))

    def expect_demo(self, report: Any, backends: Sequence[str] = BACKENDS) -> None:
        wrong = differences(report, backends)
        self.expect("the report is what the demo was made to show", not wrong, wrong)

    def expect_red_check_and_comment(self, headline: str = HEADLINE) -> None:
        checks = [(check["conclusion"], check["head_sha"]) for check in self.github.checks]
        self.expect("one check, red, of the head", checks == [("failure", self.world.head)], checks)
        bodies = self.github.bodies(NUMBER)
        self.expect("one comment, with the findings", len(bodies) == 1 and headline in bodies[0], bodies)


def two_stages(stage: Stage) -> None:
    """pull-request.yml and publish.yml: a stranger's pull request, from a fork."""
    world, github = stage.world, stage.github
    world.open_on(github, FORK)
    checkout, payload = world.checkout(stage.work / "merge", world.merge, depth=2), world.of_pull_request(FORK)
    code, log = stage.act("pull-request.yml", "pull_request", payload, checkout, world.merge, READS, "77", "--rebuild")
    stage.expect("the job that runs the change is green", code == 0, code)
    stage.expect("it asks nothing of GitHub", not github.requests, github.requests)
    stage.expect("no token is in its log", READS not in log)
    stage.expect_demo(stage.report("77/hfexport-report"))

    empty = world.checkout(stage.work / "nothing")
    code, _ = stage.act("publish.yml", "workflow_run", world.of_finished_run("77"), empty, world.base, WRITES, "78")
    stage.expect("the job that publishes is green", code == 0, code)
    stage.expect_red_check_and_comment()
    for body in github.bodies(NUMBER):
        shown = photograph(body, stage.work)
        print(json.dumps(shown, indent=1))
        stage.expect("the browser shows a table and folded findings", bool(shown["tables"] and shown["details"]))
        stage.expect("nothing is wider than the page", not shown["wide"])
        stage.expect("no picture, script or form is in it", not shown["foreign"])


def hostile(stage: Stage) -> None:
    """pull-request.yml on models that try what code under test must not be able to do."""
    names = ("Good", *ATTACKS)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = Place(Path("/tmp"), python="", with_users=True, options={}, listener=listener)

        def make(repository: Path) -> None:
            repository.mkdir(parents=True)
            git(repository, "init", "--quiet", "--initial-branch=main")
            for attacks, branch in ((False, "main"), (True, "pull-request")):
                git(repository, "checkout", "--quiet", "-B", branch)
                files = place.files(attacks, names)
                files[".github/hfexport.yml"] += "backends: [dynamo]\n"
                for name, text in files.items():
                    (repository / name).parent.mkdir(exist_ok=True)
                    (repository / name).write_text(text)
                commit(repository, f"attacks: {attacks}")

        world = World.build(stage.work / "hostile", make)
        checkout, payload = (
            world.checkout(stage.work / "hostile/merge", world.merge, depth=2),
            world.of_pull_request(FORK),
        )
        code, log = stage.act("pull-request.yml", "pull_request", payload, checkout, world.merge, READS, "85")
    stage.expect("the job is green", code == 0, code)
    stage.expect("no token is in its log", READS not in log)
    report = Report.model_validate_json(stage.store.files["85/hfexport-report/report.json"])
    cases = {case.id.class_name.removesuffix("Model"): case for case in report.cases}
    found = {name: case.verdict.value for name, case in cases.items()}
    wanted = {"Good": "unchanged", **dict.fromkeys(ATTACKS, "regression")}
    stage.expect("each attack costs its own case only", found == wanted, found)
    print("the thief:", cases["Thief"].message)
    print("not protected:", *report.notes, sep="\n  ")
    try:
        require_nothing_stolen(cases["Thief"], report, place)
    except AssertionError as error:
        stage.expect("the thief got nothing", False, error)


def private(stage: Stage, composite: bool = False) -> None:
    """private.yml: one job for all, with the token that writes."""
    world = stage.world
    world.open_on(stage.github, REPOSITORY)
    checkout, payload = world.checkout(stage.work / "merge", world.merge, depth=2), world.of_pull_request(REPOSITORY)
    act, more = stage.act, []
    if composite:
        # What is installed lies here: act gives a container a minute to vanish, and two gigabytes may take longer.
        installed = stage.work / "installed"
        shutil.rmtree(installed, ignore_errors=True)
        installed.mkdir()
        act, more = stage.act.without_container, [f"--container-options=--volume={installed}:/tmp"]
    code, log = act("private.yml", "pull_request", payload, checkout, world.merge, WRITES, "79", *more)
    stage.expect("the job is green, since the check is red", code == 0, code)
    stage.expect("no token is in its log", WRITES not in log)
    stage.expect_red_check_and_comment(SHORT_HEADLINE)


def composite_action(stage: Stage) -> None:
    """private.yml with the composite action: installed in the job itself."""
    private(stage, composite=True)


def stranger_command(stage: Stage) -> None:
    """comment-command.yml: somebody who may not write to the repository orders in vain."""
    _comment(stage, "/export run", "80", "eve")
    github = stage.github
    stage.expect("a stranger's order does nothing", not stage.store.files and not github.writes(), github.writes())


def comment_command(stage: Stage) -> None:
    """comment-command.yml: a maintainer orders a run, then accepts what it found."""
    world, github = stage.world, stage.github
    _comment(stage, "/export run", "81")
    stage.expect_demo(stage.report("81/hfexport-report"), [ONE_BACKEND])
    stage.expect_red_check_and_comment(SHORT_HEADLINE)

    done = {"id": 81, "head_sha": world.head, "head_branch": "topic", "status": "completed", "conclusion": "success"}
    github.runs["pull-request.yml"] = [done]
    _comment(stage, "/export accept zoo/* shipped without exports", "82")
    conclusions = [check["conclusion"] for check in github.checks]
    stage.expect("with all accepted the check is green", conclusions == ["failure", "success"], conclusions)


def _comment(stage: Stage, body: str, run_id: str, author: str = "ada") -> None:
    """A comment on the pull request, of which GitHub tells comment-command.yml."""
    world, github = stage.world, stage.github
    github.pulls.clear()
    world.open_on(github, FORK)
    github.permissions = {"ada": "write", "eve": "read"}
    empty = world.checkout(stage.work / "nothing")
    payload = world.of_comment(body, author)
    code, _ = stage.act("comment-command.yml", "issue_comment", payload, empty, world.base, WRITES, run_id)
    stage.expect(f"the workflow of {body!r} by {author} is green", code == 0, code)


def sweep(stage: Stage) -> None:
    """sweep.yml: all models without a baseline, then some of base's against that."""
    world, github = stage.world, stage.github

    def run(revision: str, run_id: str, models: str) -> tuple[int, Any]:
        checkout = world.checkout(stage.work / "swept", revision)
        payload = world.of_dispatch(models=models, shards="2")
        code, _ = stage.act("sweep.yml", "workflow_dispatch", payload, checkout, revision, WRITES, run_id)
        return code, stage.report(f"{run_id}/hfexport-sweep")

    code, report = run(world.head, "90", "")
    stage.expect("a sweep without a baseline is green", code == 0, code)
    verdicts = {case["verdict"] for case in report["cases"]}
    stage.expect("without a baseline there are no verdicts", verdicts == {"no-baseline"}, verdicts)
    done = {"id": 90, "head_sha": world.head, "head_branch": "main", "status": "completed", "conclusion": "success"}
    github.runs["sweep.yml"] = [done]
    code, report = run(world.base, "91", "zoo/modeling_experts.py zoo/modeling_embedder.py")
    stage.expect("a sweep that finds regressions is red", code != 0, code)
    red = sorted(case["id"].split("/")[-4] for case in report["cases"] if case["verdict"] == "regression")
    stage.expect("the experts no longer export", red == ["ExpertRegressor"], red)


def demo(name: str) -> Callable[[Path], None]:
    """What writes the repository of a scenario."""
    return build_repository if name in WHOLE else partial(build_repository, settings=f"backends: [{ONE_BACKEND}]\n")


#: What runs on the whole demo; the others on one backend of it.
WHOLE = ("two-stages",)
#: What needs no image of the action.
WITHOUT_IMAGE = frozenset({"composite"})
SCENARIOS: Mapping[str, Callable[[Stage], None]] = {
    "two-stages": two_stages,
    "hostile": hostile,
    "private": private,
    "comment-command": comment_command,
    "stranger-command": stranger_command,
    "sweep": sweep,
    "composite": composite_action,
}
