"""``make e2e``: the workflows to copy, run as GitHub runs them, on the demo's pull request.

act runs each workflow in podman's containers and builds our action's image from its Dockerfile; what the action writes
goes to the small GitHub of the tests. Exits with 0 exactly when all that was looked at is as it should be.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.engine import (
    HERE,
    RUNNER,
    WHEELS_PORT,
    base_from_debian,
    build_image,
    install_programs,
    podman_service,
    served,
)
from tests.e2e.scenarios import SCENARIOS, WITHOUT_IMAGE, WRITES, Stage, demo
from tests.e2e.store import Store
from tests.e2e.workflows import IMAGE, ROOT, Act, copy_action
from tests.e2e.world import World
from tests.hfexport_bot.github.server import GitHub


def main() -> int:
    options = _options()
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    if (config := os.environ.get("CONTAINERS_CONF")) is not None:
        os.environ["CONTAINERS_CONF"] = str(Path(config).resolve())  # podman reads it from other folders too
    install_programs()
    wrong = []
    with ExitStack() as stack:
        docker = stack.enter_context(
            podman_service(Path(stack.enter_context(tempfile.TemporaryDirectory())) / "podman")
        )
        if options.wheels:
            stack.enter_context(served(options.wheels, WHEELS_PORT))
        if options.base == "debian":
            base_from_debian(work, options.torch_index, bool(options.wheels), options.certificate)
        build_image(RUNNER, HERE, "runner.Dockerfile")
        action, names = copy_action(work / "action"), options.scenario or list(SCENARIOS)
        if set(names) - WITHOUT_IMAGE:
            build_image(IMAGE, action)  # or act would take what it built of earlier code
        for name in names:
            world = World.build(work, demo(name))
            with GitHub() as github, Store() as store, served(world.origin / ".git") as origin:
                github.token = WRITES
                addresses = {"GITHUB_API_URL": github.url, "ARTIFACTS": store.url, "ORIGIN": origin}
                act = Act(work, docker, action, addresses, options.torch_index)
                stage = Stage(act, github, store, world, work)
                print(f"--- {name}", flush=True)
                try:
                    SCENARIOS[name](stage)
                except Exception as error:  # the other scenarios are tried all the same
                    traceback.print_exc()
                    stage.expect("the scenario ran to its end", False, repr(error))
                stage.expect("GitHub's API description has every request", not github.violations, github.violations)
                wrong += [f"{name}: {each}" for each in stage.wrong]
    for each in wrong:
        print(f"e2e: WRONG: {each}", file=sys.stderr)
    print(f"e2e: {'wrong, see above' if wrong else 'all as it should be'}; what was made lies in {work}")
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("scenario", nargs="*", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--work", type=Path, default=ROOT / "build/e2e", help="where logs and pictures go")
    parser.add_argument(
        "--base", choices=("registry", "debian"), default="registry", help="where python:3.11-slim comes from"
    )
    parser.add_argument(
        "--torch-index", default="", help="in place of PyTorch's own index; of the Dockerfile with --base debian alone"
    )
    parser.add_argument("--wheels", type=Path, help="with --base debian: a folder of wheels to install from as well")
    parser.add_argument("--certificate", type=Path, action="append", default=[], help="with --base debian: of a proxy")
    options = parser.parse_args()
    unknown = set(options.scenario) - set(SCENARIOS)
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; use {', '.join(SCENARIOS)}")
    return options


if __name__ == "__main__":
    sys.exit(main())
