"""Packages in the manner of ``transformers.exporters``, of the two shapes that there have been."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hfexport_bot.runner.engines.package import ExportersPackage

#: What both shapes share: a patch of ``torch.square``, and a preparer that makes ``length`` of ``x``.
UTILS = """
import contextlib
import torch

_PATCHES = {}
_EXPORT_INPUT_PREPARERS = {}
_FX_PROGRAM_FIXES = {}

def _prepare_length(model, inputs):
    inputs["length"] = torch.tensor(inputs["x"].shape[1]).repeat(inputs["x"].shape[0])

_EXPORT_INPUT_PREPARERS[("x",)] = _prepare_length

def precompute_export_inputs(model, inputs):
    for markers, prepare in _EXPORT_INPUT_PREPARERS.items():
        if all(inputs.get(marker) is not None for marker in markers):
            prepare(model, inputs)

def _patch_square(original):
    def patch(value):
        return value * value
    return patch

def _fix_nothing(program):
    pass

_FX_PROGRAM_FIXES["dynamo"] = [_fix_nothing]

@contextlib.contextmanager
def patched(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value(before))
    try:
        yield
    finally:
        setattr(owner, name, before)

def trace(model, inputs, config, place):
    precompute_export_inputs(model, inputs)
    model.touched = True
    if "broken" in inputs:
        raise KeyError("a model of this kind")
    with contextlib.ExitStack() as stack:
        for owner, name, factory in _PATCHES["dynamo"]:
            stack.enter_context(patched(place(owner), name, factory))
        shapes = None
        if config.dynamic:
            auto = torch.export.Dim.AUTO
            tensors = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
            shapes = {k: dict.fromkeys(range(v.dim()), auto) if k in tensors else None for k, v in inputs.items()}
        program = torch.export.export(model, (), kwargs=inputs, dynamic_shapes=shapes)
    for fix in _FX_PROGRAM_FIXES["dynamo"]:
        fix(program)
    return program
"""
OLD = """
from dataclasses import dataclass
import torch
from .utils import _PATCHES, _patch_square, trace

_PATCHES["dynamo"] = [(torch, "square", _patch_square)]

@dataclass
class DynamoConfig:
    dynamic: bool = False

class DynamoExporter:
    def export(self, model, sample_inputs, config):
        return trace(model, sample_inputs, config, lambda owner: owner)

    def export_for_generation(self, model, sample_inputs, config, generation_config=None):
        programs = {}
        for name in ("prefill", "decode"):
            try:
                programs[name] = self.export(model, dict(sample_inputs), config)
            except Exception as error:
                raise RuntimeError(f"export failed on component {name}") from error
        return programs
"""
NEW = """
from dataclasses import dataclass
import importlib
from .utils import _PATCHES, _patch_square, trace

_PATCHES["dynamo"] = [("torch", "square", _patch_square)]

@dataclass
class Config:
    dynamic: bool = False
    quantizer: object = None

@dataclass
class Component:
    program: object
    metadata: dict

class Exported:
    def __init__(self, components):
        self.components = components

class DynamoExporter:
    config_class = Config

    def export(self, model, sample_inputs, config):
        program = trace(model, sample_inputs, config, importlib.import_module)
        return Exported({"model": Component(program, {})})
"""
SHAPES = {"old": OLD, "new": NEW}


@contextmanager
def fake_package(folder: Path, shape: str) -> Iterator[ExportersPackage]:
    """The package of a shape, importable while inside."""
    name = f"fake_{shape}_exporters"
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("from .exporter_dynamo import *\n")
    (package / "utils.py").write_text(UTILS)
    (package / "exporter_dynamo.py").write_text(textwrap.dedent(SHAPES[shape]))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    try:
        yield ExportersPackage.find(name)
    finally:
        sys.path.remove(str(folder))
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            del sys.modules[module]
