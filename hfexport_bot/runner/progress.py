"""How far a case has come: the stage that runs, the seconds each took, and what its outcome depends on."""

from __future__ import annotations

import time
from collections.abc import Callable

from hfexport_bot.runner.executed_lines import ExecutedLines
from hfexport_bot.schema import Fingerprint

OnStage = Callable[[str, str], None]
OnFingerprint = Callable[[Fingerprint], None]

#: What comes before the graph of a component is there; an outcome from here on does not follow from graphs.
_BEFORE_GRAPH = {
    "signature",
    "model_patches",
    "pytree",
    "shapes",
    "trace",
    "backend_preparation",
    "torch_patches",
    "onnx_patches",
    "executorch_patches",
}


class SameAsTwin(BaseException):
    """The other side has a case of the same fingerprint: what follows is known. No error, so nothing catches it."""


class Progress:
    """The stage that is running, with its component, the seconds each took, and the fingerprint so far.

    Args:
        on_fingerprint: told whenever the outcome, if it came now, would depend on something else.
        twin: the fingerprint of the other side's case.
        executed: notes the changed lines that run.
        eager_to: where to write what eager ran on, if that is other than the twin's.
    """

    def __init__(
        self,
        on_stage: OnStage,
        on_fingerprint: OnFingerprint | None = None,
        twin: Fingerprint | None = None,
        executed: ExecutedLines | None = None,
        eager_to: str | None = None,
    ) -> None:
        self.current = self.component = ""
        self.seconds: dict[str, float] = {}
        self.fingerprint: Fingerprint | None = None
        self.executed = executed
        self._graphs: tuple[str, ...] = ()
        self._on_stage = on_stage
        self._on_fingerprint = on_fingerprint
        self._twin = twin
        self._eager_to = eager_to
        self._started = time.perf_counter()

    def begin(self, stage: str, component: str = "") -> None:
        self.end()
        self.current, self.component = stage, component
        self._on_stage(stage, component)
        if stage in _BEFORE_GRAPH and self.fingerprint is not None:
            self._depends_on(self.fingerprint.model_copy(update={"graphs": ()}))
        if self.executed is not None:
            self.executed.begin(stage)

    def end(self) -> None:
        if self.executed is not None:
            self.executed.end()
        now = time.perf_counter()
        if self.current:
            self.seconds[self.current] = self.seconds.get(self.current, 0.0) + now - self._started
        self._started = now

    def ran_eagerly(self, fingerprint: str) -> str | None:
        """Eager's outputs are there; returns where to write them, if anywhere."""
        self._depends_on(Fingerprint(eager=fingerprint))
        return self._eager_to if self._twin is not None and self._twin.eager != fingerprint else None

    def traced(self, fingerprint: str) -> None:
        """One more graph is there. Raises `SameAsTwin` where the other side has all the same."""
        if self.fingerprint is None:
            return
        self._graphs += (fingerprint,)
        self._depends_on(self.fingerprint.model_copy(update={"graphs": self._graphs}))
        if self.fingerprint == self._twin:
            raise SameAsTwin

    @property
    def awaited(self) -> int:
        """How many graphs the other side's case has, on the same weights, inputs and outputs of eager; 0 for others."""
        if self._twin is None or self.fingerprint is None or self._twin.eager != self.fingerprint.eager:
            return 0
        return len(self._twin.graphs)

    def follows_twin(self) -> bool:
        """Whether the graphs so far are the first ones of the other side's case."""
        return self._twin is not None and self._twin.graphs[: len(self._graphs)] == self._graphs

    def trace_again(self) -> None:
        """Forget the graphs: they come once more."""
        self._graphs = ()
        if self.fingerprint is not None:
            self._depends_on(self.fingerprint.model_copy(update={"graphs": ()}))

    def _depends_on(self, fingerprint: Fingerprint) -> None:
        if fingerprint != self.fingerprint:
            self.fingerprint = fingerprint
            if self._on_fingerprint is not None:
                self._on_fingerprint(fingerprint)
