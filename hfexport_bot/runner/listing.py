"""``python -m hfexport_bot.runner.listing --events-fd N``: write every registered workaround to descriptor N.

One ``WorkaroundInfo`` a line. Looking a patch's path up imports the model it patches, so this runs where cases run.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from exporters.registry import Workaround, resolve, workarounds
from hfexport_bot.runner.confine import confine
from hfexport_bot.schema import Backend, WorkaroundInfo


def main(arguments: list[str] | None = None) -> int:
    """Write the list; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hfexport_bot.runner.listing")
    parser.add_argument("--events-fd", type=int, required=True, metavar="N", help="descriptor to write to")
    fd = parser.parse_args(arguments).events_fd

    # Importing an exporter registers its workarounds.
    import exporters.dynamo.exporter
    import exporters.executorch.exporter
    import exporters.onnx.exporter
    import exporters.skips  # noqa: F401

    with os.fdopen(fd, "w") as stream:
        for workaround in workarounds():
            stream.write(describe(workaround).model_dump_json() + "\n")
    return 0


def describe(workaround: Workaround) -> WorkaroundInfo:
    """A registered workaround as it crosses to the trusted side."""
    patched = workaround.kind == "patch"
    scope = f"{', '.join(workaround.targets)}: " if workaround.kind in ("skip", "no_optimize") else ""
    return WorkaroundInfo(
        id=workaround.id,
        kind=workaround.kind,
        backend=Backend(workaround.backend),
        stage=workaround.stage,
        reason=scope + workaround.reason,
        upstream=workaround.upstream or "",
        model_change=workaround.model_change or "",
        targets=tuple(str(target) for target in workaround.targets),
        unresolved=tuple(path for path in workaround.targets if resolve(path) is None) if patched else (),
    )


if __name__ == "__main__":
    confine(Path.home())
    sys.exit(main())
