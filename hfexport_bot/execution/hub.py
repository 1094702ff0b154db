"""Checkpoints of the Hugging Face hub, fetched by the trusted side and read offline by a runner.

Only what the base revision's settings name is fetched: the configuration and safetensors weights, nothing that runs and
nothing that is unpickled. The request carries no token, since what is fetched is handed to code under test; a private
or gated repository is therefore out of reach. Folders are kept in the user's cache by repository and commit.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hfexport_bot.cache import cache_folder, made_once

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoSibling

#: Most bytes that one checkpoint may have.
MAX_BYTES = 5 << 30

_SECONDS = 30.0
_WANTED_FILE = re.compile(
    r"(generation_)?config\.json|model(-\d+-of-\d+)?\.safetensors|model\.safetensors\.index\.json"
)
_COMMIT = re.compile(r"[0-9a-f]{40}")


class HubError(Exception):
    """A checkpoint could not be fetched; the message is one line that says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A repository's files at one commit, in a local folder."""

    repository: str
    commit: str
    folder: Path


@dataclass(frozen=True)
class Fetched:
    """Local folders by class name or model, why there is none for others, and what the report has to say."""

    folders: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


#: Fetches ``repository[@revision]``, or raises `HubError`.
FetchCheckpoint = Callable[[str], Checkpoint]


def fetch_checkpoints(wanted: Mapping[str, str], *, allowed: bool, fetch: FetchCheckpoint) -> Fetched:
    """Fetch what ``wanted`` names (class name or model to ``repository[@revision]``), each repository once."""
    if not allowed:
        problem = "the settings name {} for it, and fetch it with `allow-hub: true`"
        return Fetched(problems={key: problem.format(name) for key, name in wanted.items()})
    found: dict[str, Checkpoint] = {}
    failed: dict[str, str] = {}
    for name in dict.fromkeys(wanted.values()):
        try:
            found[name] = fetch(name)
        except HubError as error:
            failed[name] = str(error)
    return Fetched(
        {key: str(found[name].folder) for key, name in wanted.items() if name in found},
        {key: failed[name] for key, name in wanted.items() if name in failed},
        (
            *(f"checkpoint {each.repository} at {each.commit[:12]}" for each in found.values()),
            *(f"checkpoint {name}: {problem}" for name, problem in failed.items()),
        ),
    )


def fetch_checkpoint(
    name: str, *, environment: Mapping[str, str] = os.environ, max_bytes: int = MAX_BYTES
) -> Checkpoint:
    """Fetch ``repository`` or ``repository@revision``, or find it again; a full commit hash needs no network then.

    Raises `HubError` where the hub refuses or does not answer, there are no safetensors weights, or they are too big.
    """
    repository, _, revision = name.partition("@")
    place = cache_folder(environment) / "checkpoints" / repository.replace("/", "--")
    try:
        if _COMMIT.fullmatch(revision) and (place / revision).is_dir():
            return Checkpoint(repository, revision, place / revision)
        with _telling(repository, revision):
            return _fetch(repository, revision or None, place, environment.get("HF_ENDPOINT") or None, max_bytes)
    except OSError as error:
        raise HubError(f"{repository} could not be kept in the cache: {error}") from None


def _fetch(repository: str, revision: str | None, place: Path, endpoint: str | None, max_bytes: int) -> Checkpoint:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    api = HfApi(endpoint=endpoint, token=False)
    info = api.model_info(repository, revision=revision, files_metadata=True, timeout=_SECONDS)
    if not info.sha or not _COMMIT.fullmatch(info.sha):
        raise HubError(f"the hub names no commit of {repository}")
    commit = info.sha
    files = _chosen(repository, info.siblings or [], max_bytes)

    def download(folder: Path) -> None:
        disable_progress_bars()
        snapshot_download(
            repository,
            revision=commit,
            local_dir=folder,
            allow_patterns=[glob.escape(file) for file in files],
            token=False,
            endpoint=endpoint,
            max_workers=4,
        )
        shutil.rmtree(folder / ".cache", ignore_errors=True)
        missing = [file for file in files if not (folder / file).is_file()]
        if missing:
            raise HubError(f"the hub did not give {missing[0]} of {repository}")
        _require_size(repository, sum((folder / file).stat().st_size for file in files), max_bytes)

    return Checkpoint(repository, commit, made_once(place / commit, download))


def _chosen(repository: str, siblings: list[RepoSibling], max_bytes: int) -> list[str]:
    """The files to fetch: at the top of the repository, and of no kind that could hold code."""
    sizes = {each.rfilename: each.size or 0 for each in siblings if _WANTED_FILE.fullmatch(each.rfilename)}
    if "config.json" not in sizes:
        raise HubError(f"{repository} has no config.json")
    if not any(name.endswith(".safetensors") for name in sizes):
        raise HubError(f"{repository} has no model.safetensors, and no other weights are read")
    _require_size(repository, sum(sizes.values()), max_bytes)
    return list(sizes)


def _require_size(repository: str, size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise HubError(
            f"{repository} has {size / 1e9:.1f} GB of weights; at most {max_bytes / 1e9:.1f} GB are fetched, "
            "so name a smaller checkpoint"
        )


@contextlib.contextmanager
def _telling(repository: str, revision: str) -> Iterator[None]:
    """Turn what the hub's client raises into one line."""
    import httpx
    from huggingface_hub import errors

    try:
        yield
    except errors.OfflineModeIsEnabled:
        raise HubError(f"{repository} was not fetched: HF_HUB_OFFLINE is set") from None
    except errors.GatedRepoError:
        raise HubError(f"{repository} is gated, and no token is sent: name a public checkpoint") from None
    except errors.RevisionNotFoundError:
        raise HubError(f"{repository} has no revision {revision!r}") from None
    except errors.RepositoryNotFoundError:
        raise HubError(f"the hub has no public repository {repository}, and no token is sent") from None
    except errors.HfHubHTTPError as error:
        raise HubError(f"the hub answered {error.response.status_code} for {repository}") from None
    except (httpx.HTTPError, errors.LocalEntryNotFoundError, ConnectionError) as error:
        raise HubError(f"the hub did not answer for {repository}: {_first_line(error)}") from None
    except ValueError as error:  # a name that is none
        raise HubError(f"{repository}: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    return next((line.strip()[:200] for line in str(error).splitlines() if line.strip()), type(error).__name__)
