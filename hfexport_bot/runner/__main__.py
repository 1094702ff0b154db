"""``python -m hfexport_bot.runner --events-fd N``: run the cases named on standard input.

Standard input holds JSON lines, a ``RunnerSetup`` and then a ``Batch`` of cases at a time, until its end.
``RunnerEvent`` lines are written to descriptor N, never to standard output.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from hfexport_bot.runner.processes import stand_guard


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m hfexport_bot.runner", description="Run untrusted cases.")
    parser.add_argument("--events-fd", type=int, required=True, metavar="N", help="descriptor to write events to")
    fd = parser.parse_args(arguments).events_fd
    stand_guard()

    # Before the overlay is on the path: what crosses the processes is read with the bot's own pydantic.
    from hfexport_bot.runner.confine import confine
    from hfexport_bot.runner.server import EventStream, read_input, serve
    from hfexport_bot.runner.tree import put_overlay_first
    from hfexport_bot.runner.watched_case import clean
    from hfexport_bot.schema import Fatal

    events = EventStream(fd)
    try:
        missing = confine(Path.home())
        setup, batches = read_input(sys.stdin.buffer)
        put_overlay_first(setup.search_path)
        from hfexport_bot.runner.confined_case import run_confined
        from hfexport_bot.runner.failures import died
    except Exception as error:
        traceback.print_exc()
        events.send(Fatal(message=clean(f"the runner cannot start: {type(error).__name__}: {error}")))
        return 1
    return serve(setup, batches, events, run_confined, missing, died)


if __name__ == "__main__":
    sys.exit(main())
