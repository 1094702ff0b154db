"""Stages: the labelled steps of an export, timed, told as each begins, and named by every failure."""

from __future__ import annotations

import itertools
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: The stages of each backend, in the order they run. ONNX and ExecuTorch run dynamo's in between their own
#: patches and the rest.
STAGES: Mapping[str, tuple[str, ...]] = {
    "dynamo": ("signature", "model_patches", "pytree", "shapes", "trace", "state_cleanup"),
    "onnx": (
        "torch_patches",
        "onnx_patches",
        "node_fixes",
        "decompose",
        "translate",
        "optimize",
        "ir_fixes",
    ),
    "executorch": (
        "backend_preparation",
        "torch_patches",
        "executorch_patches",
        "program_fixes",
        "node_fixes",
        "lower",
        "emit",
    ),
}

OnStage = Callable[[str], None]

#: File, line and function.
Frame = tuple[str, int, str]

#: Called with a program right after its trace, before anything changes it.
OnTrace = Callable[["ExportedProgram"], None]

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_MODELING_FILE = re.compile(r"modeling_\w+\.py$")


class StageError(RuntimeError):
    """An export failed. ``__cause__`` is the original exception.

    Attributes:
        backend: ``dynamo``, ``onnx`` or ``executorch``.
        stage: one of ``STAGES[...]``, the step that failed.
        reason: the original exception without the wrapping that torch.onnx puts around it.
        file, line, function: the innermost modeling line the failure can be traced to; ``None`` where nothing in the
            error points at one.
    """

    def __init__(self, backend: str, stage: str, cause: BaseException) -> None:
        self.backend = backend
        self.stage = stage
        self.frame = locate(cause)
        self.file: str | None = None
        self.line: int | None = None
        self.function: str | None = None
        if self.frame is not None:
            self.file, self.line, self.function = self.frame
        where = f" at {Path(self.file).name}:{self.line}" if self.file else ""
        self.reason = _reason(cause)
        super().__init__(
            f"{backend} export failed in stage {stage}{where}: {type(self.reason).__name__}: {self.reason}"
        )


def _reason(error: BaseException) -> BaseException:
    """The error that torch.onnx wrapped into a report of its own, or the error itself."""
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
    return error


def locate(error: BaseException) -> Frame | None:
    """The innermost frame of a ``modeling_*.py`` file that an error knows of, see `frames_of`."""
    return next((frame for frame in frames_of(error) if is_modeling(frame)), None)


def frames_of(error: BaseException) -> tuple[Frame, ...]:
    """The frames of the code under test that an error knows of, and those around them, the innermost first.

    Looks at the tracebacks along the chain of causes first, then at the frames in messages and notes, where torch and
    our exporters tell them for steps that no longer run the model's code. Where none has a line of a modeling file,
    these are the frames of all tracebacks.
    """
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    tracebacks = [_innermost_first(_traceback(link)) for link in chain]
    texts = ("\n".join((str(link), *getattr(link, "__notes__", ()))) for link in chain)
    told = (_innermost_first([(file, int(line), name) for file, line, name in _FRAME.findall(text)]) for text in texts)
    found = next((frames for frames in itertools.chain(tracebacks, told) if any(map(is_modeling, frames))), None)
    return found or tuple(itertools.chain(*tracebacks))


def is_modeling(frame: Frame) -> bool:
    """Whether a frame is one of a ``modeling_*.py`` file."""
    return bool(_MODELING_FILE.search(frame[0]))


def _traceback(error: BaseException) -> list[Frame]:
    return [(f.filename, f.lineno or 0, f.name) for f in traceback.extract_tb(error.__traceback__)]


def _innermost_first(frames: list[Frame]) -> tuple[Frame, ...]:
    return tuple(reversed(frames))


class StageRunner:
    """Runs the stages of one export.

    Args:
        backend: whose stages these are; named in a ``StageError``.
        on_stage: called with a stage's name as it begins.
        on_trace: called with the traced program; what it raises ends the export.
    """

    def __init__(self, backend: str, on_stage: OnStage | None = None, on_trace: OnTrace | None = None) -> None:
        self.backend = backend
        self.seconds: dict[str, float] = {}
        self.on_trace = on_trace
        self._on_stage = on_stage

    @contextmanager
    def stage(self, name: str) -> Iterator[Callable[[str], None]]:
        """Run one stage: what is raised inside becomes a ``StageError`` that names it.

        Yields a function that moves on to another stage, for calls into torch that span several.
        """
        current = name
        started = self._begin(name)

        def move_on(following: str) -> None:
            nonlocal current, started
            self._end(current, started)
            current, started = following, self._begin(following)

        try:
            yield move_on
        except StageError:
            raise
        except Exception as error:
            raise StageError(self.backend, current, error) from error
        finally:
            self._end(current, started)

    def _begin(self, name: str) -> float:
        if self._on_stage is not None:
            self._on_stage(name)
        return time.perf_counter()

    def _end(self, name: str, started: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started
