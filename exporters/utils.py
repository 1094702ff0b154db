"""The registration functions, under the path that the documentation of model exporters gives."""

from exporters.registry import (
    Hits,
    Workaround,
    apply_fx_node_fixes,
    apply_fx_program_fixes,
    apply_patches,
    register_export_input_preparer,
    register_fx_node_fix,
    register_fx_program_fix,
    register_ir_fix,
    register_model_patch,
    register_patch,
    register_translation,
    workarounds,
)
from exporters.skips import register_export_skip, register_onnx_disable_optimize

__all__ = [
    "Hits",
    "Workaround",
    "apply_fx_node_fixes",
    "apply_fx_program_fixes",
    "apply_patches",
    "register_export_input_preparer",
    "register_export_skip",
    "register_fx_node_fix",
    "register_fx_program_fix",
    "register_ir_fix",
    "register_model_patch",
    "register_onnx_disable_optimize",
    "register_patch",
    "register_translation",
    "workarounds",
]
