"""Which statements of the changed files a case executes, found by Python's own tracing of lines.

Only the frames of these files are traced line by line, and nothing is once all that is looked for has been seen.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

from hfexport_bot.schema import MAX_EXECUTED, RunnerSetup

#: The stages in which a model's own code runs.
_STAGES = frozenset({"source", "eager", "trace"})


class ExecutedLines:
    """Notes the watched statements that run while it is on."""

    def __init__(self, setup: RunnerSetup) -> None:
        self._watched = setup.watched
        self._roots = [Path(setup.tree or "."), Path(setup.tree or ".").resolve()]
        #: By file as code objects name it, the watched file and the first line of the statement of each line.
        self._files: dict[str, tuple[str, dict[int, int]]] = {}
        for file, spans in setup.watched.items():
            firsts = {line: span[0] for span in spans for line in range(span[0], span[1] + 1)}
            self._files |= {str(root / file): (file, firsts) for root in self._roots}
        self._left = {(file, span[0]) for file, spans in setup.watched.items() for span in spans}
        self._seen: set[tuple[str, int]] = set()
        self._on = False

    def begin(self, stage: str) -> None:
        """Watch in the stages that run a model's code, as long as something has not been seen."""
        if stage in _STAGES and self._left:
            self._on = True
            sys.settrace(self._trace)
        else:
            self.end()

    def end(self) -> None:
        """Stop watching."""
        if self._on:
            sys.settrace(None)
            self._on = False

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._on:  # put back by who had found it on
            sys.settrace(None)
            return None
        return self._trace_line if frame.f_code.co_filename in self._files else None

    def _trace_line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            file, firsts = self._files[frame.f_code.co_filename]
            first = firsts.get(frame.f_lineno)
            if first is not None:
                self._seen.add((file, first))
                self._left.discard((file, first))
                if not self._left:
                    self.end()
        return self._trace_line

    def found(self) -> dict[str, tuple[int, ...]] | None:
        """The first lines of the statements seen, by file; None where none are watched. What runs at import counts once
        its file is imported, which may have been long before."""
        if not self._watched:
            return None
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        for file, spans in self._watched.items():
            if any(str(root / file) in files for root in self._roots):
                self._seen |= {(file, span[0]) for span in spans if span[2]}
        seen: dict[str, list[int]] = {}
        for file, line in sorted(self._seen)[:MAX_EXECUTED]:
            seen.setdefault(file, []).append(line)
        return {file: tuple(lines) for file, lines in seen.items()}
