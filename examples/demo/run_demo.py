"""The demo: a pull request on a small repository of models, judged as the action would judge it.

Builds a git repository from the folders ``base`` and ``head``, runs ``hfexport-bot run`` on it and prints the report. Exits
with 0 exactly when the report shows what the change was made to show.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: What the change does to each class, as (verdict, outcome, stage) by backend.
EXPECTED = {
    # a branch on a tensor's value stops every trace
    "Tagger": dict.fromkeys(("dynamo", "onnx", "executorch"), ("regression", "error", "trace")),
    # attention in place of a mean needs other operators of the runtime; over an empty span it gives zeros in PyTorch and the mean of
    # all tokens in ONNX Runtime
    "SpanClassifier": {
        "dynamo": ("interface", "pass", ""),
        "onnx": ("regression", "parity", "parity"),
        "executorch": ("interface", "pass", ""),
    },
    # a loop over the experts in use becomes a loop over all of them
    "ExpertRegressor": dict.fromkeys(("dynamo", "onnx", "executorch"), ("fixed", "pass", "")),
}
#: Only its docstrings change.
NOT_RUN = "zoo/modeling_embedder.py"
BACKENDS = ("dynamo", "onnx", "executorch")
FINDINGS_EXIT_CODE = 1


def main() -> int:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "hfexport-out/demo")
    with tempfile.TemporaryDirectory(prefix="hfexport-demo-") as folder:
        repo = Path(folder) / "zoo-repo"
        build_repository(repo)
        command = [sys.executable, "-m", "hfexport_bot", "run", "--repo", str(repo), "--base", "main"]
        code = subprocess.run([*command, "--head", "pull-request", "--out", str(out)], check=False).returncode
    if code != FINDINGS_EXIT_CODE:
        print(f"demo: expected exit code {FINDINGS_EXIT_CODE}, got {code}", file=sys.stderr)
        return 1
    print((out / "report.md").read_text())
    wrong = differences(json.loads((out / "report.json").read_text()))
    for line in wrong:
        print(f"demo: {line}", file=sys.stderr)
    if not wrong:
        print(f"The report shows what the demo was made to show. It lies in {out}.")
    return 1 if wrong else 0


def build_repository(repo: Path, settings: str = "") -> None:
    """A repository with two branches: ``main`` holds base, ``pull-request`` one commit on top of it holds head.

    ``settings`` are added to those of the repository.
    """
    shutil.copytree(HERE / "base", repo)
    git(repo, "init", "--quiet", "--initial-branch=main")
    add(repo, settings)
    commit(repo, "Add four models")
    git(repo, "checkout", "--quiet", "-b", "pull-request")
    shutil.copytree(HERE / "head", repo, dirs_exist_ok=True)
    add(repo, settings)
    commit(repo, "Rescale, attend to spans, trace the experts, describe the embedder")


def add(repo: Path, settings: str) -> None:
    with (repo / ".github/hfexport.yml").open("a") as file:
        file.write(settings)


def commit(repo: Path, message: str) -> None:
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", message)


def git(repo: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=demo", "-c", "user.email=demo@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repo), *identity, *arguments], check=True)


def differences(report: dict, backends: Collection[str] = BACKENDS) -> list[str]:
    """Where a report on these backends is not what the demo was made to show, one line each."""
    found = {}
    for case in report["cases"]:
        *_, class_name, backend, _shapes, _task = case["id"].split("/")
        found.setdefault(class_name, {})[backend] = (case["verdict"], case["outcome"], case["stage"])
    lines = [
        f"{class_name} on {backend}: expected {wanted}, got {found.get(class_name, {}).get(backend)}"
        for class_name, by_backend in EXPECTED.items()
        for backend, wanted in by_backend.items()
        if backend in backends and found.get(class_name, {}).get(backend) != wanted
    ]
    lines += [f"{class_name} was run and should not have been" for class_name in found.keys() - EXPECTED.keys()]
    if NOT_RUN not in [entry["name"] for entry in report["not_run"]]:
        lines.append(f"{NOT_RUN} is not listed as not run")
    return lines


if __name__ == "__main__":
    sys.exit(main())
