"""How far the synthesised source reaches: every class of four mappings of transformers, each job in a fork of its own.

``python tests/hfexport_bot/runner/sources/census.py [WORD ...] [--out FILE]``: jobs whose type or class has one of the
words, all without any; a line a job goes to the file, a summary to the terminal. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import resource
import select
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from transformers.models.auto import modeling_auto

from hfexport_bot.runner.eager import run_eager
from hfexport_bot.runner.sources import ModelCase, Unavailable
from hfexport_bot.runner.sources.media import fed_modalities, needed_modalities
from hfexport_bot.runner.sources.synthesised import synthesised_case

MAPPINGS = (
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
)
SECONDS = 60
MEMORY = 8 << 30  # address space that a job may add, in bytes


@dataclass(frozen=True)
class Job:
    """What came of one (model type, class): ``cause`` is empty where eager ran with everything fed."""

    model_type: str
    class_name: str
    cause: str = ""
    message: str = ""
    seconds: float = 0.0
    parameters: int = 0
    fed: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        return not self.cause


def jobs() -> list[Job]:
    """Every (model type, class) of the mappings once, in their order."""
    found: dict[tuple[str, str], Job] = {}
    for mapping in MAPPINGS:
        for model_type, names in getattr(modeling_auto, mapping).items():
            for name in (names,) if isinstance(names, str) else names:
                found.setdefault((model_type, name), Job(model_type, name))
    return list(found.values())


def examine(job: Job) -> Job:
    """Make the case, run eager, and look whether each modality moves an output."""
    model_class: Any = getattr(transformers, job.class_name)
    try:
        inspect.signature(model_class.forward)
    except (AttributeError, ImportError) as error:
        return replace(job, cause="missing library", message=str(error).strip()[:300])
    started = time.process_time()  # others may be busy on the machine
    try:
        case = synthesised_case(model_class, 0)
    except Unavailable as error:
        return replace(job, cause=error.cause.value, message=error.message[:300])
    parameters = sum(parameter.numel() for parameter in case.model.parameters())
    try:
        outputs = run_eager(case.model, case.inputs, 0)
    except Exception as error:
        return replace(job, cause="eager", message=f"{type(error).__name__}: {error}"[:300], parameters=parameters)
    job = replace(job, seconds=round(time.process_time() - started, 3), parameters=parameters, inputs=list(case.inputs))
    if not outputs:
        return replace(job, cause="eager", message="no tensor among the outputs")
    unfed = sorted(needed_modalities(type(case.model)) - fed_modalities(case.inputs))
    if unfed:
        return replace(job, cause="not fed", message=", ".join(unfed))
    deaf = [name for name in case.inputs if fed_modalities({name: 1}) and not _moves(case, name, outputs)]
    return replace(
        job,
        fed=sorted(fed_modalities(case.inputs)),
        **({"cause": "no reaction", "message": ", ".join(deaf)} if deaf else {}),
    )


def _moves(case: ModelCase, name: str, before: dict[str, torch.Tensor]) -> bool:
    """Whether another value of a media input moves an output; values that tell of layouts are passed over."""
    value = case.inputs[name]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    noise = torch.randn(value.shape, generator=torch.Generator().manual_seed(1)).to(value.dtype)
    after = run_eager(case.model, {**case.inputs, name: value + noise}, 0)
    return any(key not in after or not torch.equal(tensor, after[key]) for key, tensor in before.items())


def in_fork(job: Job) -> Job:
    """``examine`` in a fork that ends after `SECONDS`, whatever it does."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _quiet()
        try:
            found = examine(job)
        except BaseException as error:
            found = replace(job, cause="census", message=f"{type(error).__name__}: {error}"[:300])
        os.write(writing, json.dumps(asdict(found)).encode()[:60_000])
        os._exit(0)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], SECONDS)
    if not ready:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if answer:
        return Job(**json.loads(answer))
    return replace(job, cause="crash" if ready else "timeout", message=f"after {SECONDS} s" if not ready else "")


def _import_all() -> None:
    """Every module once, in the parent of all forks: their shared parts take longer than the cases do."""
    for job in jobs():
        with contextlib.suppress(Exception):  # what cannot be imported is told by its own job
            getattr(transformers, job.class_name)


def _quiet() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    torch.set_num_threads(1)
    limit = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def run(words: list[str]) -> Iterator[Job]:
    torch.set_num_threads(1)
    if not words:
        _import_all()
    for job in jobs():
        if not words or any(word in (job.model_type, job.class_name) for word in words):
            yield in_fork(job)


def summary(found: list[Job]) -> str:
    reached = [job for job in found if job.reached]
    seconds = statistics.median(job.seconds for job in reached) if reached else 0
    most = max((job.parameters for job in reached), default=0)
    media = sum(bool(job.fed) for job in reached)
    lines = [
        f"{len(reached)} of {len(found)} ({len(reached) / max(1, len(found)):.1%}), {media} of them with media, "
        f"median {seconds:.2f} s of CPU, at most {most / 1e6:.2f} million parameters"
    ]
    causes = Counter(job.cause for job in found if not job.reached)
    return "\n".join([*lines, *(f"  {count:4} {cause}" for cause, count in causes.most_common())])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=Path, default=Path(os.devnull))
    arguments = parser.parse_args()
    every = []
    with arguments.out.open("w") as out:
        for job in run(arguments.words):
            every.append(job)
            print(json.dumps(asdict(job)), file=out, flush=True)
            if arguments.words:
                print(asdict(job))
    print(summary(every))
