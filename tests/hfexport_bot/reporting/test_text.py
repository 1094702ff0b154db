from __future__ import annotations

import pytest
from markdown_it import MarkdownIt

from hfexport_bot.reporting.text import clean, code, fenced, html_code, one_line, plain

HOSTILE = [
    "@octocat and @org/team",
    "<img src=x onerror=alert(1)><script>x</script>",
    "</summary></details></code>",
    "[click](https://evil.example) https://evil.example www.evil.example",
    "![x](https://evil.example/x.png)",
    "a | b || c \\| d \\",
    "`` ` ``` ```` code",
    "```\nout of the fence\n```",
    "# heading\n\n- list\n\n> quote",
    "*bold* _em_ ~~no~~ #12 GH-12 owner/repo#3",
    "\x1b[31mred\x1b[0m\x07\x08\x00",
    "\u202egnp.exe \u2066 \u200b",
    "line\u2028break\u0085and\x0bmore\r\nend",
    "&lt;b&gt; &#64;octocat",
    "::add-mask::x\n  ::error::y\n##[add-mask]z",
]


def tokens(markdown: str) -> set[str]:
    """The kinds of everything in a piece of Markdown, at any depth."""
    found = set()
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        found.add(token.type)
        found |= {child.type for child in token.children or ()}
    return found


@pytest.mark.parametrize("text", HOSTILE)
def test_code_is_one_code_span_whatever_comes_in(text: str) -> None:
    assert tokens(f"before {code(text)} after") == {
        "paragraph_open",
        "inline",
        "text",
        "code_inline",
        "paragraph_close",
    }


@pytest.mark.parametrize("text", HOSTILE)
def test_code_stays_in_its_table_cell(text: str) -> None:
    table = f"| a | b |\n|---|---|\n| {code(text)} | last |\n"
    parsed = MarkdownIt("commonmark").enable("table").parse(table)
    cells = [parsed[at + 1].content for at, token in enumerate(parsed) if token.type == "td_open"]
    assert len(cells) == 2
    assert cells[1] == "last"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_fence_is_one_block_and_holds_its_text(text: str) -> None:
    parsed = MarkdownIt("commonmark").parse(fenced(text) + "\n\nafter")
    assert [token.type for token in parsed] == ["fence", "paragraph_open", "inline", "paragraph_close"]
    assert parsed[0].content.strip() == clean(text).strip()


@pytest.mark.parametrize("text", HOSTILE)
def test_html_code_has_no_tag_of_its_own(text: str) -> None:
    inside = html_code(text).removeprefix("<code>").removesuffix("</code>")
    assert not set(inside) & set("<>\"'\n")


@pytest.mark.parametrize("text", HOSTILE)
def test_plain_is_one_line_without_controls_or_commands(text: str) -> None:
    line = plain(text)
    assert line.isprintable()
    assert not line.lstrip().startswith("::")
    assert "##[" not in line


def test_plain_keeps_names_with_colons() -> None:
    assert plain("kernel 'aten::erf.out' not found") == "kernel 'aten::erf.out' not found"
    assert plain("a ::error:: b") == "a : :error:: b"


def test_ordinary_text_is_left_alone() -> None:
    assert code("LlamaAttention.forward changed") == "`LlamaAttention.forward changed`"
    assert fenced("a\n    b") == "```text\na\n    b\n```"
    assert html_code("x < 1") == "<code>x &lt; 1</code>"


def test_empty_text() -> None:
    assert (code(" \n"), html_code(""), plain("\x00"), clean("")) == ("", "", "", "")


def test_long_text_is_cut_and_says_so() -> None:
    assert one_line("x" * 500, 10) == "x" * 9 + "…"
    block = fenced("\n".join(f"line {number}" for number in range(100)), max_lines=3)
    assert block == "```text\nline 0\nline 1\nline 2\n… 97 more lines\n```"
    assert len(fenced("x" * 100_000, max_chars=50)) < 80


def test_unpaired_surrogates_can_be_written() -> None:
    assert clean("a\udce9b").encode() == b"ab"
