"""One workflow to copy, run by act as GitHub runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.e2e.engine import RUNNER
from tests.hfexport_bot.github.server import REPOSITORY

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
OWNER = "OWNER/hfexport-bot"
COMMIT = "0" * 40
#: The image that act builds of our action; the sweep uses it in place of a released one.
IMAGE = f"act-owner-hfexport-bot-{COMMIT}-dockeraction:latest"
STAND_INS = ("cache", "checkout", "download-artifact", "setup-python", "upload-artifact")


@dataclass(frozen=True)
class Act:
    """Act, with what its runs share. ``docker`` is the engine's address, ``action`` a copy of our action's files;
    ``addresses`` are variables of the jobs. ``composite``: our composite action in place of the container, which
    installs torch from ``torch_index``, its own where that is empty."""

    work: Path
    docker: str
    action: Path
    addresses: Mapping[str, str]
    torch_index: str = ""
    composite: bool = False

    @property
    def without_container(self) -> Act:
        return replace(self, composite=True)

    def __call__(
        self, workflow: str, event: str, payload: Any, checkout: Path, sha: str, token: str, run_id: str, *more: str
    ) -> tuple[int, str]:
        """Run ``examples/workflows/WORKFLOW`` for an event; the exit code and the log, which is also printed."""
        name = f"{Path(workflow).stem}-{run_id}"
        file = self.work / f"{name}.yml"
        text = (ROOT / "examples/workflows" / workflow).read_text()
        text = text.replace(f"ghcr.io/{OWNER}@sha256:{'0' * 64}", IMAGE)
        text = text.replace("strategy.job-index", "matrix.shard")  # act does not know the former
        if self.composite:
            text = text.replace(f"{OWNER}@{COMMIT}", f"{OWNER}/composite@{COMMIT}")
            if self.torch_index:
                text += f"          torch-index: {self.torch_index}\n"  # private.yml ends with the action's inputs
        file.write_text(text)
        (self.work / f"{name}.json").write_text(json.dumps(payload))
        environment = {
            **self.addresses,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_RUN_ID": run_id,
            "SHA_REF": sha,  # act's name for GITHUB_SHA
        }
        command = [
            str(Path(sys.executable).parent / "act"), event, "--workflows", str(file), "--directory", str(checkout),
            "--eventpath", str(self.work / f"{name}.json"), "--platform", f"ubuntu-latest={RUNNER}",
            "--rm", "--pull=false", "--network=host", "--container-daemon-socket=-", "--no-cache-server",
            "--use-new-action-cache", "--action-cache-path", str(self.work / "act-cache"),
            "--secret", f"GITHUB_TOKEN={token}",
            *(f"--env={key}={value}" for key, value in environment.items()),
            *(f"--local-repository={key}={value}" for key, value in self._local(text).items()),
            *more,
        ]  # fmt: skip
        began = time.monotonic()
        log = []
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "DOCKER_HOST": self.docker},
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                log.append(line)
        (self.work / f"{name}.log").write_text("".join(log))
        print(f"{workflow} on {event}: exit code {process.returncode} in {time.monotonic() - began:.0f} s", flush=True)
        return process.returncode, "".join(log)

    def _local(self, workflow: str) -> dict[str, str]:
        """Actions that act takes from this machine: ours, and stand-ins for those of GitHub's that need GitHub."""
        found = {f"{OWNER}@{COMMIT}": str(self.action)}
        composite = (ROOT / "composite/action.yml").read_text()
        for line in [*workflow.splitlines(), *composite.splitlines()]:
            uses, _, action = line.split("#")[0].strip().removeprefix("- ").partition(": ")
            name = action.strip().partition("@")[0].removeprefix("actions/")
            if uses == "uses" and name in STAND_INS:
                found[action.strip()] = str(HERE / "stand_ins" / name)
        return found


def copy_action(to: Path) -> Path:
    """The files of this repository as a commit of it would have them, without what only lies about."""
    shutil.rmtree(to, ignore_errors=True)
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file() and not name.startswith("tests/"):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to
