from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from exporters import Artifact, DynamoConfig, DynamoExporter, ExecutorchExporter, OnnxExporter
from exporters.dynamo.pytree import register_cache_pytrees
from exporters.leaves import named_leaves
from tests.exporters.models import Mean, mean_inputs

pytestmark = pytest.mark.export

ROOT = Path(__file__).parents[2]

#: Loads each folder without transformers, runs it on saved inputs and compares with saved outputs.
LOAD = """
import sys, torch
if {blocked}: sys.modules["transformers"] = None
from exporters import Artifact
for folder in sys.argv[1:]:
    inputs, expected = torch.load(folder + "/expected.pt")
    artifact = Artifact.load(folder, allow_pickle=True)
    torch.testing.assert_close(artifact(**inputs), expected, rtol=1e-4, atol=1e-4)
    assert artifact.config is not None and artifact.versions["torch"] == torch.__version__
"""


def _load_elsewhere(*folders: Path, blocked: bool) -> None:
    subprocess.run(
        [sys.executable, "-c", LOAD.format(blocked=blocked), *map(str, folders)],
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    DynamoExporter().export_artifact(Mean().eval(), mean_inputs(), DynamoConfig(max_size=32)).save(folder)
    return folder


@pytest.mark.process
def test_programs_run_in_a_process_without_transformers(tmp_path: Path) -> None:
    model, inputs = Mean().eval(), {**mean_inputs(3, 7), "scale": 2.0}
    folders = []
    for exporter in (DynamoExporter(), OnnxExporter(), ExecutorchExporter()):
        artifact = exporter.export_artifact(model, {**mean_inputs(), "scale": 2.0}, {"max_size": 16})
        folders.append(tmp_path / exporter.backend)
        artifact.save(folders[-1])
        torch.save((inputs, named_leaves(model(**inputs))), folders[-1] / "expected.pt")
        loaded = Artifact.load(folders[-1], allow_pickle=True)
        assert (loaded.config, loaded.axes, loaded.constants) == (artifact.config, artifact.axes, {"scale": 2.0})
        assert (loaded.stage_seconds, loaded.workarounds) == (artifact.stage_seconds, artifact.workarounds)
        again = loaded.save(tmp_path / "again")
        assert again.stat().st_size > 0
        assert json.loads((again.parent / "artifact.json").read_text()) == loaded.metadata()
    _load_elsewhere(*folders, blocked=True)


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    return LlamaModel(LlamaConfig(**sizes, vocab_size=20)).eval()


@pytest.mark.process
def test_a_pt2_with_a_cache_and_a_model_output_finds_their_classes(tmp_path: Path) -> None:
    from transformers import DynamicCache

    model = _llama()

    def step(batch: int, past: int) -> dict[str, Any]:
        cache = DynamicCache(config=model.config)
        cache.update(torch.ones(batch, 2, past, 8), torch.ones(batch, 2, past, 8), 0)
        return {"input_ids": torch.ones(batch, 2, dtype=torch.long), "past_key_values": cache}

    artifact = DynamoExporter().export_artifact(model, step(2, 4))
    assert "past_key_values.layers.0.keys" in artifact.input_paths
    assert artifact.constants == {}
    artifact.save(tmp_path)
    classes = json.loads((tmp_path / "artifact.json").read_text())["classes"]
    assert [path.partition(":")[2] for path in classes] == ["DynamicCache", "BaseModelOutputWithPast"]
    register_cache_pytrees(model)
    inputs = named_leaves(step(3, 6))
    torch.save((inputs, named_leaves(model(**step(3, 6)))), tmp_path / "expected.pt")
    _load_elsewhere(tmp_path, blocked=False)
    Artifact.load(tmp_path, allow_pickle=True)  # where torch's broken warning would raise


def test_a_pt2_is_read_only_with_leave(saved: Path) -> None:
    with pytest.raises(ValueError, match="may run code as it is read; pass allow_pickle=True"):
        Artifact.load(saved)


def _edited(**fields: Any) -> Callable[[Path], Any]:
    def edit(folder: Path) -> None:
        file = folder / "artifact.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return edit


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda folder: (folder / "artifact.json").unlink(),
            r"is no saved export: artifact.json cannot be read \(No such",
        ),
        (lambda folder: (folder / "artifact.json").write_text("{"), r"artifact.json is damaged: it is no JSON"),
        (lambda folder: (folder / "artifact.json").write_text("[]"), "has format None and this version reads format 1"),
        (_edited(format=7), "has format 7 and this version reads format 1; export and save anew"),
        (_edited(axes=[{"input": "x"}]), r"artifact.json is damaged \(TypeError"),
        (_edited(backend="coreml"), r"artifact.json is damaged \(KeyError: 'coreml'"),
        (_edited(config={"max_size": 0}), r"artifact.json is damaged \(ValueError: the bound of a dynamic axis"),
        (_edited(classes=["no_such.module:Thing"]), "takes or gives a Thing of no_such.module, not to be found here"),
        (_edited(classes=["fractions:Fraction"]), "takes or gives a Fraction, which torch.export knows only where"),
        (lambda folder: (folder / "model.pt2").unlink(), "model.pt2 is missing: artifact.json beside it describes it"),
        (lambda folder: (folder / "model.pt2").write_bytes(b"PK"), "cannot be read as a torch.export program"),
    ],
)
def test_a_damaged_or_foreign_folder_gives_one_clear_error(
    saved: Path, tmp_path: Path, damage: Callable[[Path], Any], message: str
) -> None:
    for file in saved.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert Artifact.load(tmp_path, allow_pickle=True).config == DynamoConfig(max_size=32)
    damage(tmp_path)
    with pytest.raises(ValueError, match=message):
        Artifact.load(tmp_path, allow_pickle=True)


def test_a_config_that_cannot_be_saved_leaves_nothing_behind(tmp_path: Path) -> None:
    artifact = Artifact("dynamo", None, (), (), config=DynamoConfig(dynamic_shapes={"x": object()}))
    with pytest.raises(TypeError, match="cannot be saved"):
        artifact.save(tmp_path / "out")
    assert not (tmp_path / "out").exists()
