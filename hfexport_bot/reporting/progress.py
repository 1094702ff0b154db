"""What is going on while cases run."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from hfexport_bot.execution.sides import SideName
from hfexport_bot.reporting.summary import duration, error_size
from hfexport_bot.reporting.text import plain
from hfexport_bot.schema import CaseFinished, CaseId, Outcome, OutcomeKind, Ready, RunnerEvent, StageBegan, largest
from hfexport_bot.verdicts.compare import place

#: Running cases that are shown at a time.
MAX_RUNNING = 8


class Progress:
    """Shows events of both runners: live lines on a terminal, otherwise one plain line for each finished
    case.

    Used as a context manager; `event` is called for one event at a time, from any thread.
    """

    def __init__(
        self,
        console: Console,
        total: int,
        what: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``total`` is how often cases run, over both sides; ``what`` says which runs these are, unless they are the
        first; ``clock`` gives seconds."""
        self.total = total
        self.finished = 0
        self._console = console
        self._what = f"{what}, " if what else ""
        self._clock = clock
        self._running: dict[tuple[SideName, CaseId], tuple[float, str]] = {}
        self._live = Live(console=console, get_renderable=self._render, transient=True, refresh_per_second=4)

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def event(self, side: SideName, event: RunnerEvent) -> None:
        """Take note of an event of one side's runner."""
        if isinstance(event, StageBegan):
            started, _ = self._running.get((side, event.id), (self._clock(), ""))
            stage = f"{event.component} {event.stage}" if event.component else event.stage
            self._running[side, event.id] = (started, stage)
        elif isinstance(event, CaseFinished):
            self._running.pop((side, event.id), None)
            self.finished += 1
            self._say(self._finished_line(side, event.id, event.outcome))
        elif isinstance(event, Ready):
            self._say(f"{side}: runner ready")
        else:
            self._say(f"{side}: the runner cannot work: {plain(event.message)}")

    def _finished_line(self, side: SideName, case: CaseId, outcome: Outcome) -> str:
        said = outcome.kind.value
        error = largest(component.max_abs for component in outcome.components)
        if outcome.kind is not OutcomeKind.PASS and outcome.stage:
            said += f" at {plain(place(outcome), 80)}"
        elif error is not None:
            said += f" {error_size(error)}"
        count = f"[{self.finished}/{self.total}]"
        return f"{count} {self._what}{side} {plain(str(case), 300)}: {said}, {duration(outcome.seconds)}"

    def _say(self, line: str) -> None:
        # Not wrapped: a line that is broken in a log could begin with anything.
        self._console.print(Text(line), soft_wrap=True)

    def _render(self) -> Text:
        now = self._clock()
        running = list(self._running.items())  # a copy: events come from other threads
        lines = [
            f"  {side} {plain(str(case), 300)}: {plain(stage, 80)}, {duration(now - started)}"
            for (side, case), (started, stage) in running[:MAX_RUNNING]
        ]
        if len(running) > MAX_RUNNING:
            lines.append(f"  and {len(running) - MAX_RUNNING} more")
        return Text(
            "\n".join([f"{self._what}{self.finished} of {self.total} done", *lines]), overflow="ellipsis", no_wrap=True
        )
