from __future__ import annotations

import os

import pytest

from exporters import registry
from exporters.skips import register_export_skip
from hfexport_bot.runner.listing import describe, main
from hfexport_bot.schema import Backend, WorkaroundInfo

UPSTREAM = "https://github.com/a/b/issues/1"


@pytest.mark.process
def test_skips_are_listed_with_the_models_they_are_for() -> None:
    skip_id = register_export_skip(
        "hangs", "gpt2", backend="onnx", reason="It hangs.", shapes="static", upstream=UPSTREAM
    )
    try:
        reading, writing = os.pipe()
        assert main(["--events-fd", str(writing)]) == 0
        with os.fdopen(reading) as stream:
            listed = [WorkaroundInfo.model_validate_json(line) for line in stream]
        described = describe(registry.workarounds(kind="skip")[-1])
    finally:
        registry.unregister(skip_id)
    assert described in listed
    assert (described.id, described.backend, described.stage) == (skip_id, Backend.ONNX, "source")
    assert (described.reason, described.upstream) == ("gpt2, static: It hangs.", UPSTREAM)
    assert "dynamo/model_patches/patch_classifier_cast" in [each.id for each in listed]
