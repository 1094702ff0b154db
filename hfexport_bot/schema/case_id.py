"""The path that names a case."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer, model_validator

from hfexport_bot.schema.words import Backend, Engine, Shapes, Task, Variant, fit

_SEGMENT = r"[\w.\-]+"
_PATH = rf"{_SEGMENT}(/{_SEGMENT})*"
_ID_PATTERN = re.compile(rf"(?P<path>{_PATH})(\+(?P<variant>\w+))?(@(?P<engine>\w+))?")


class CaseId(BaseModel):
    """One case: class x backend x shapes x task.

    Written as a path wherever it appears, ``llama/LlamaForCausalLM/onnx/dynamic/forward``. ``model`` is the model's
    folder in a transformers checkout and the module's path, which may have several segments, elsewhere. A run may have
    a case several times: with one of the model's own switches turned, its ``variant``, and with another engine. Then
    the path goes on, ``.../forward+eager_attention@repo``.
    """

    model_config = ConfigDict(frozen=True)

    model: Annotated[str, Field(pattern=f"^{_PATH}$"), AfterValidator(fit)]
    class_name: Annotated[str, Field(pattern=f"^{_SEGMENT}$"), AfterValidator(fit)]
    backend: Backend
    shapes: Shapes = Shapes.DYNAMIC
    task: Task = Task.FORWARD
    variant: Variant | None = None
    engine: Engine = Engine.OWN

    def __str__(self) -> str:
        path = "/".join((self.model, self.class_name, self.backend, self.shapes, self.task))
        variant = f"+{self.variant}" if self.variant else ""
        return path + variant + (f"@{self.engine}" if self.engine is not Engine.OWN else "")

    @property
    def log_name(self) -> str:
        """The file name of the case's log."""
        return f"{str(self).replace('/', '--')[-200:]}.log"

    @classmethod
    def parse(cls, text: str) -> CaseId:
        """Read a path. Raises ``ValueError`` that says what the path should look like."""
        found = _ID_PATTERN.fullmatch(text)
        parts = found["path"].split("/") if found else []
        if found is None or len(parts) < 5:
            raise ValueError(
                f"{text!r} is no case id; expected MODEL/CLASS/BACKEND/SHAPES/TASK, and +VARIANT or @ENGINE behind it"
            )
        model, (class_name, backend, shapes, task) = "/".join(parts[:-4]), parts[-4:]
        return cls(
            model=model,
            class_name=class_name,
            backend=Backend(backend),
            shapes=Shapes(shapes),
            task=Task(task),
            variant=Variant(found["variant"]) if found["variant"] else None,
            engine=Engine(found["engine"] or Engine.OWN),
        )

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, value: Any) -> Any:
        if isinstance(value, str):
            return cls.parse(value).__dict__
        return value

    @model_serializer
    def _to_path(self) -> str:
        return str(self)
