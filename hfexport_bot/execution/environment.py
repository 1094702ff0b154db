"""What a runner may see of its surroundings: a short list of variables, and a private home that is thrown away."""

from __future__ import annotations

import contextlib
import site
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from hfexport_bot.folders import remove_folder

#: Passed on as they are; everything else, tokens first of all, stays out. Python builds that share their library need
#: LD_LIBRARY_PATH to start.
_KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")

_FIXED = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "LOGNAME": "hfexport",  # a user without an account has no other name
    "CUDA_VISIBLE_DEVICES": "",
}


def runner_environment(environment: Mapping[str, str], home: Path) -> dict[str, str]:
    """The variables of a runner that lives in ``home``, given those of this process."""
    kept = {name: value for name, value in environment.items() if name in _KEPT or name.startswith("LC_")}
    places = {"HOME": str(home), "TMPDIR": str(home / "tmp"), "HF_HOME": str(home / "huggingface")}
    if site.ENABLE_USER_SITE:  # packages of a user installation would be looked for in the new home
        places["PYTHONUSERBASE"] = site.getuserbase()
    return kept | _FIXED | places


@contextlib.contextmanager
def private_home() -> Iterator[Path]:
    """A new folder, with a ``tmp`` inside, that is gone afterwards whatever was done in it."""
    home = Path(tempfile.mkdtemp(prefix="hfexport-runner-")).resolve()
    try:
        (home / "tmp").mkdir()
        yield home
    finally:
        remove_folder(home)
