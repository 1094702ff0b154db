"""What act needs to run containers: podman behind a socket, and the two images that no workflow builds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: The Dockerfile's FROM.
BASE = "docker.io/library/python:3.11-slim-bookworm"
#: Stands in for GitHub's ubuntu-latest.
RUNNER = "localhost/hfexport-e2e-runner:latest"
#: Programs by the Debian package that has them.
PROGRAMS = {"podman": "podman", "runc": "runc", "chromium": "chromium", "npm": "npm", "git": "git"}
FONTS = ("fonts-noto-color-emoji", "fonts-liberation")
#: Where wheels are served; fixed, since it becomes part of an image that is kept.
WHEELS_PORT = 8765


def install_programs(*more: str) -> None:
    """Install what is missing, as root on Debian or Ubuntu; otherwise say what to install."""
    wanted = {**PROGRAMS, **{name: name for name in more}}
    missing = [package for program, package in wanted.items() if shutil.which(program) is None]
    if not missing:
        return
    packages = [*missing, *FONTS]
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        sys.exit(f"error: install these first: {' '.join(packages)}")
    run("apt-get", "update", "-qq")
    run("apt-get", "install", "--yes", "-qq", "--no-install-recommends", *packages)


def run(*command: str, text: str | None = None) -> None:
    """Run a program; its failure is an exception."""
    print("$", *command, flush=True)
    subprocess.run(command, check=True, input=text, text=True)


@contextmanager
def podman_service(socket: Path) -> Iterator[str]:
    """Podman's Docker API; yields its address. Ends with the block, and nothing of it stays but images."""
    address = f"unix://{socket}"
    # act asks podman about itself several times a step, and Debian's asks dpkg each time which packages it is of.
    (socket.parent / "dpkg-query").symlink_to(shutil.which("false") or "/bin/false")
    environment = {**os.environ, "PATH": f"{socket.parent}:{os.environ['PATH']}"}
    service = subprocess.Popen(["podman", "system", "service", "--time=0", address], env=environment)
    try:
        for _ in range(300):
            if socket.exists():
                break
            if service.poll() is not None:
                sys.exit("error: podman system service ended; see above, and tests/e2e/containers.conf")
            time.sleep(0.1)
        yield address
    finally:
        service.terminate()
        service.wait(30)
        socket.unlink(missing_ok=True)


@contextmanager
def served(folder: Path, port: int = 0) -> Iterator[str]:
    """Serve a folder's files to this machine; yields its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def build_image(tag: str, folder: Path, file: str = "Dockerfile") -> None:
    """Build an image of a folder. What did not change since is taken from the last time, of act too."""
    run(
        "podman",
        "build",
        "--quiet",
        "--format=docker",
        "--network=host",
        "--tag",
        tag,
        "--file",
        str(folder / file),
        str(folder),
    )


def base_from_debian(work: Path, torch_index: str, wheels: bool, certificates: Sequence[Path]) -> None:
    """Where no registry of images is to be had: the image that the Dockerfile is FROM, made of Debian's packages.

    As in the real one, Python is in /usr/local. pip is told of the wheels that are served here, and TORCH_INDEX, which
    overrides the Dockerfile's own default, of an index that can be reached.
    """
    install_programs("mmdebstrap")
    folder = work / "base"
    folder.mkdir(exist_ok=True)
    packages = "ca-certificates,python3,python3-venv"
    if not (folder / "debian.tar").exists():
        run("mmdebstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(folder / "debian.tar"))
    for number, certificate in enumerate(certificates):
        shutil.copy(certificate, folder / f"{number}.crt")
    pip = ["[global]", "cert = /etc/ssl/certs/ca-certificates.crt"]
    pip += [f"find-links = http://127.0.0.1:{WHEELS_PORT}/"] if wheels else []
    (folder / "pip.conf").write_text("\n".join([*pip, ""]))
    lines = [
        "FROM scratch",
        "ADD debian.tar /",
        *(["COPY *.crt /usr/local/share/ca-certificates/"] if certificates else []),
        "RUN update-ca-certificates",
        "COPY pip.conf /etc/pip.conf",
        "ENV PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
        "RUN python3 -m venv --upgrade-deps /usr/local",
        *([f"ENV TORCH_INDEX={torch_index}"] if torch_index else []),
    ]
    (folder / "Dockerfile").write_text("\n".join([*lines, ""]))
    build_image(BASE, folder)
