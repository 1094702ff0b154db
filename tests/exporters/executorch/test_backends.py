from __future__ import annotations

import pytest
import torch

from exporters import ExecutorchExporter, StageError
from exporters.executorch import backends
from tests.exporters.models import Mean, mean_inputs


def test_cuda_without_a_gpu_is_refused_with_what_to_choose_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(StageError, match=r"'cuda' compiles for a GPU and torch finds none.*'xnnpack'") as caught:
        ExecutorchExporter().export(Mean().eval(), mean_inputs(), {"backend": "cuda"})
    assert caught.value.stage == "backend_preparation"
    assert isinstance(caught.value.reason, ValueError)


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU there is triton")
def test_cuda_says_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(ValueError, match="needs triton"):
        backends.prepare("cuda", Mean())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the CUDA delegate imports triton")
@pytest.mark.parametrize(("dtype", "specs"), [(torch.bfloat16, 2), (torch.float32, 3)])
def test_cuda_leaves_its_bfloat16_kernels_out_for_other_dtypes(dtype: torch.dtype, specs: int) -> None:
    (partitioner,) = backends.prepare("cuda", Mean().to(dtype))
    assert len(partitioner.delegation_spec.compile_specs) == specs


@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_a_model_off_the_cpu_is_refused(backend: str) -> None:
    with pytest.raises(ValueError, match="lies on meta; move it with"):
        backends.prepare(backend, Mean().to("meta"))
