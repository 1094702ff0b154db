"""Other users of the machine, for tests that root runs: folders that they reach, and a Python that they can start."""

from __future__ import annotations

import contextlib
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hfexport_bot

#: Users without an account, for runners, others in each of pytest's workers, as a runner takes all that its users have
#: down with it; and Debian's user without rights.
_FIRST = 64_101 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = (_FIRST, _FIRST + 1)
NOBODY = 65_534


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that other users can enter, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="hfexport-test-", dir="/tmp")).resolve()
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def python_for(user: int, folder: Path) -> str | None:
    """A Python with this one's packages that a user can start; made in ``folder`` from the system's where this one lies
    out of reach. Skips the test where there is none."""
    if _starts(sys.executable, user):
        return sys.executable
    base = shutil.which(f"python3.{sys.version_info.minor}", path="/usr/bin:/usr/local/bin")
    if base is not None and _starts(base, user, "pass"):
        environment = folder / "python"
        subprocess.run([base, "-m", "venv", "--without-pip", str(environment)], check=True)
        packages = next((environment / "lib").glob("python3.*")) / "site-packages"
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        root = Path(str(hfexport_bot.__file__)).parents[1]
        (packages / "this.pth").write_text("\n".join([str(root), *lines]) + "\n")
        if _starts(python := str(environment / "bin" / "python"), user):
            return python
    return None


def _starts(python: str, user: int, code: str = "import hfexport_bot, pydantic, psutil") -> bool:
    """Whether a user can start a Python and import these."""
    command = [python, "-P", "-c", code]
    with contextlib.suppress(OSError):
        done = subprocess.run(
            command, user=user, group=user, extra_groups=(), cwd="/", capture_output=True, check=False
        )
        return done.returncode == 0
    return False
