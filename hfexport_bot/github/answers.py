"""What the bot reads of GitHub's answers; all else in them is passed over."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class User(_Part):
    """Somebody, or an app's bot."""

    login: str


class Repository(_Part):
    """A repository; ``pushed_at`` is the last push to any of its branches."""

    full_name: str
    pushed_at: datetime | None = None


class Head(_Part):
    """A pull request's head. A fork may be gone."""

    sha: str
    ref: str
    repo: Repository | None


class Base(_Part):
    """What a pull request is to be merged into: a branch, and its commit."""

    sha: str
    ref: str


class Pull(_Part):
    """A pull request."""

    number: int
    state: str
    head: Head
    base: Base


class Comment(_Part):
    """A comment. Its author's account may be gone."""

    id: int
    html_url: str
    body: str | None = None
    user: User | None

    @property
    def author(self) -> str:
        return self.user.login if self.user else ""


class App(_Part):
    """The app that a check run belongs to; ``slug`` is its short name."""

    slug: str | None = None


class CheckOutput(_Part):
    """What a check run shows, as far as it is counted."""

    annotations_count: int


class CheckRun(_Part):
    """A check run."""

    id: int
    html_url: str | None
    external_id: str | None
    output: CheckOutput
    app: App | None


class Parent(_Part):
    """A commit before others."""

    sha: str


class Commit(_Part):
    """A commit."""

    parents: tuple[Parent, ...]


class Comparison(_Part):
    """Two commits side by side: the best that both come from."""

    merge_base_commit: Parent


class File(_Part):
    """A file of a commit. ``content`` is base64 in lines, and empty where it is too long for that."""

    encoding: str
    content: str


class Permission(_Part):
    """What somebody may do with a repository."""

    permission: str


class Activity(_Part):
    """A push to a branch, or another change of it: the commit after it, and when."""

    after: str
    timestamp: datetime
