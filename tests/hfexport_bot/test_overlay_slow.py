"""Another transformers on one side of a change, from the user's package index: run by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from hfexport_bot.cli import main
from hfexport_bot.schema import OutcomeKind, Report

OTHER = "5.23.0"

MODEL = """
from transformers import BertConfig, BertModel
from transformers.models.bert.modeling_bert import BertPreTrainedModel


class PooledBertModel(BertPreTrainedModel):
    config_class = BertConfig

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        return self.bert(input_ids, attention_mask=attention_mask).last_hidden_state * {0}
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.export
def test_head_exports_with_the_transformers_that_its_lock_file_names(
    repository: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if transformers.__version__ == OTHER:
        pytest.skip(f"transformers {OTHER} is the installed one")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository.commit({"modeling_pooled.py": MODEL.format(1), "requirements.lock": "transformers>=5\n"})
    repository.git("checkout", "-q", "-b", "topic")
    repository.commit({"modeling_pooled.py": MODEL.format(2), "requirements.lock": f"transformers=={OTHER}\n"})
    arguments = ["run", "--repo", str(repository.path), "--base", "main", "--backend", "dynamo", "--install"]
    main([*arguments, "--jobs", "1", "--seconds", "900", "--quiet", "--out", str(tmp_path / "out")])
    report = Report.model_validate_json((tmp_path / "out" / "report.json").read_text())
    assert report.versions["transformers"] == f"{OTHER} (base {transformers.__version__})"
    assert f"head ran with transformers {OTHER} in place of {transformers.__version__}" in report.notes
    (case,) = report.cases
    assert case.base is not None
    assert case.head is not None
    assert (case.base.kind, case.head.kind) == (OutcomeKind.PASS, OutcomeKind.PASS)
