"""Small repositories' own models, a file each, and the case function that makes them: for tests that run both sides."""

from __future__ import annotations

_MODEL = """
import torch
from transformers import PretrainedConfig, PreTrainedModel
PREAMBLE

class NAMEConfig(PretrainedConfig):
    model_type = "name"

class NAMEModel(PreTrainedModel):
    config_class = NAMEConfig

    def __init__(self, config):
        super().__init__(config)
        self.inner = torch.nn.Linear(8, 8)
        self.post_init()

    def forward(self, x):
        BODY
        return {"y": y}
"""
CASES = """
import importlib, torch

def build(class_name, seed):
    torch.manual_seed(seed)
    name = class_name.removesuffix("Model")
    module = importlib.import_module(f"modeling_{name.lower()}")
    model = getattr(module, class_name)(getattr(module, f"{name}Config")())
    return {"model": model.eval(), "inputs": {"x": torch.rand(2, 8)}}
"""
#: What a forward computes where nothing is wrong with it.
SOUND = "y = torch.tanh(self.inner(x))"


def repository_of(bodies: dict[str, str], preambles: dict[str, str] | None = None, more: str = "") -> dict[str, str]:
    """The files of a repository with a model for each name, whose forward does what ``bodies`` says to find ``y``.
    ``preambles`` stand before a model's classes; ``more`` are further settings."""
    found = {"export_cases.py": CASES, ".github/hfexport.yml": f"cases: export_cases.py:build\n{more}"}
    for name, body in bodies.items():
        model = _MODEL.replace("PREAMBLE", (preambles or {}).get(name, "")).replace("BODY", body.strip())
        found[f"modeling_{name.lower()}.py"] = model.replace("NAME", name)
    return found
