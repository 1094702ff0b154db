"""A comment as GitHub shows it: GitHub's own Markdown parser and style, in headless Chromium."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

import cmarkgfm
from cmarkgfm.cmark import Options

STYLE = "github-markdown-css@5.9.0"
WIDTH = 980
_BROWSER = (
    "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-quic",
)  # fmt: skip
#: What the page tells of itself in its title.
_MEASURE = """<script>
const all = (selector) => [...document.querySelectorAll(selector)];
document.title = JSON.stringify({
  height: Math.ceil(document.body.getBoundingClientRect().height),
  wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
  tables: all("table").length,
  details: all("details").length,
  headings: all("h2, h3").map((each) => each.innerText),
  links: all("a").map((each) => each.href),
  foreign: all("img, script[src], iframe, form, input").length,
});
</script>"""


def page(markdown: str, style: str) -> str:
    """A whole page with a comment in it. Comments may have some HTML (details), as on GitHub."""
    body = cmarkgfm.github_flavored_markdown_to_html(markdown, options=Options.CMARK_OPT_UNSAFE)
    box = f"box-sizing: border-box; width: {WIDTH}px; padding: 24px"
    return (
        f'<!doctype html><meta charset="utf-8"><style>{style} body {{ margin: 0 }}</style>'
        f'<body><article class="markdown-body" style="{box}">{body}</article>{_MEASURE}'
    )


def photograph(markdown: str, folder: Path) -> dict[str, object]:
    """Write ``comment.md``, ``comment.html`` and ``comment.png``, and return what the browser says of the page."""
    (folder / "comment.md").write_text(markdown)
    html = folder / "comment.html"
    html.write_text(page(markdown, _style(folder)))
    shown = _browse("--dump-dom", html)
    title = re.search(r"<title>(.*?)</title>", shown, re.DOTALL)
    if not title:
        raise RuntimeError(f"chromium showed no page: {shown[:200]!r}")
    facts = json.loads(title.group(1).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"))
    picture = folder / "comment.png"
    _browse(f"--screenshot={picture.resolve()}", html, f"--window-size={WIDTH},{facts['height']}")
    return facts


def _style(folder: Path) -> str:
    """GitHub's own style sheet for Markdown, from npm."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", STYLE], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.split()[-1]
    with tarfile.open(folder / packed) as archive:
        sheet = archive.extractfile("package/github-markdown-light.css")
        assert sheet is not None
        return sheet.read().decode()


def _browse(what: str, html: Path, size: str = f"--window-size={WIDTH},800") -> str:
    with tempfile.TemporaryDirectory() as profile:
        command = [*_BROWSER, f"--user-data-dir={profile}", size, what, html.resolve().as_uri()]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
