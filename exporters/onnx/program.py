"""An ONNX program that takes its inputs by name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from exporters.leaves import named_leaves

#: Weights of more bytes are written to a file of their own: a protobuf message ends at 2 GiB and holds the graph too.
MAX_INLINE_BYTES = 3 << 29


class OnnxProgram(torch.onnx.ONNXProgram):
    """torch's ``ONNXProgram``, but inputs are bound by name and unknown or missing ones are refused.

    torch's own class pairs values and graph inputs by position, so that a keyword in another order silently feeds
    the wrong input.

    Attributes:
        input_paths: path of each graph input in the model's inputs, in graph order.
        constants: non-tensor arguments of forward that are baked in; they may be given again.
    """

    def __init__(
        self, program: torch.onnx.ONNXProgram, input_paths: Sequence[str], constants: Mapping[str, Any]
    ) -> None:
        super().__init__(program.model, program.exported_program)
        self.input_paths = tuple(input_paths)
        self.constants = dict(constants)

    def __call__(self, *args: torch.Tensor, **inputs: Any) -> Sequence[torch.Tensor]:
        """Run in ONNX Runtime. Raises ``ValueError`` where the inputs do not fit the graph."""
        return super().__call__(*self.bind(args, inputs))

    def call_reference(self, *args: torch.Tensor, **inputs: Any) -> Sequence[torch.Tensor]:
        """Run in ONNX's reference evaluator. Raises ``ValueError`` where the inputs do not fit the graph."""
        from exporters.onnx.reference import make_evaluator

        feeds = {
            value.name: tensor.detach().numpy()
            for value, tensor in zip(self.model.graph.inputs, self.bind(args, inputs), strict=True)
        }
        outputs = make_evaluator(self.model_proto).run(None, feeds)
        return tuple(torch.from_numpy(output) for output in outputs)

    def bind(self, args: Sequence[torch.Tensor], inputs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Positional tensors in graph order, then named ones, as the list that the graph takes."""
        if len(args) > len(self.input_paths):
            raise ValueError(f"the graph takes {len(self.input_paths)} inputs, got {len(args)}")
        given = dict(zip(self.input_paths, args, strict=False))
        named = named_leaves(dict(inputs))
        twice = sorted(given.keys() & named.keys())
        settings = {
            name
            for name, value in inputs.items()
            if value is not None and name not in self.constants and not named_leaves({name: value})
        }
        unknown = sorted((named.keys() - set(self.input_paths)) | settings)
        given.update(named)
        missing = [path for path in self.input_paths if path not in given]
        if twice or unknown or missing:
            raise ValueError(
                f"inputs do not fit the graph: unknown {unknown or 'none'}, missing {missing or 'none'}, "
                f"given twice {twice or 'none'}; it takes {list(self.input_paths)}"
            )
        return [given[path] for path in self.input_paths]

    @property
    def weight_bytes(self) -> int:
        """Size of the weights and other constants of the graph."""
        tensors = (value.const_value for value in self.model.graph.initializers.values())
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def save(self, destination: str | os.PathLike[str], *, external_data: bool | None = None, **options: Any) -> None:
        """Write the model, its weights to ``<destination>.data`` where they exceed `MAX_INLINE_BYTES` or
        ``external_data`` asks for it. ``options`` are those of ``torch.onnx.ONNXProgram.save``."""
        apart = self.weight_bytes > MAX_INLINE_BYTES if external_data is None else external_data
        super().save(destination, external_data=apart, **options)

    def load(self, initializer: Callable[[str | bytes], Any]) -> Any:
        """What ``initializer`` makes of the serialised model, or of its file where the weights are too large for one
        message. The file is gone afterwards: ONNX Runtime keeps what it has mapped."""
        if self.weight_bytes <= MAX_INLINE_BYTES:
            return initializer(self.model_proto.SerializeToString())
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.onnx")
            self.save(file)
            return initializer(str(file))

    def initialize_inference_session(self, initializer: Callable[[str | bytes], Any] | None = None) -> None:
        """Load into ONNX Runtime, on one thread of the CPU unless ``initializer`` makes another session."""
        from exporters.runtime.onnx import make_session

        self._inference_session = self.load(initializer or make_session)
