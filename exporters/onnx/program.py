"""An ONNX program that takes its inputs by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from exporters.leaves import named_leaves


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

    def initialize_inference_session(self, initializer: Callable[[str | bytes], Any] | None = None) -> None:
        """Load into ONNX Runtime, on one thread of the CPU unless ``initializer`` makes another session."""
        from exporters.runtime.onnx import make_session

        super().initialize_inference_session(initializer or make_session)
