from __future__ import annotations

import sys

import pytest

from hfexport_bot.errors import RunError
from hfexport_bot.execution.listing import list_workarounds
from hfexport_bot.schema import WorkaroundInfo
from hfexport_bot.verdicts.upstream import known_issues

pytestmark = pytest.mark.process


def test_the_real_registry_is_listed_whole(listed: tuple[WorkaroundInfo, ...]) -> None:
    ids = [each.id for each in listed]
    assert {"executorch/node_fixes/fix_gelu_tanh", "onnx/ir_fixes/fix_ir_shared_outputs"} <= set(ids)
    assert len(set(ids)) == len(ids)
    for each in listed:
        assert each.id.startswith(f"{each.backend}/{each.stage}/")
        assert each.reason
        assert each.upstream or each.model_change
        assert each.unresolved == (), "a patch no longer finds what it patches"
    named = {issue.workaround for issue in known_issues() if issue.workaround}
    assert named
    assert named <= set(ids), "known_upstream.yml names a workaround that there is not"


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", f"import os, sys\nfd = int(sys.argv[-1])\n{code}"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit('no torch here')", r"could not be listed \(exit code 1\): no torch here"),
        ("os.write(fd, b'{\"id\": 3}\\n')", "cannot be read"),
        ("os.write(fd, b'::add-mask::x\\n')", "cannot be read"),
    ],
)
def test_a_listing_that_fails_says_why(code: str, message: str) -> None:
    with pytest.raises(RunError, match=message):
        list_workarounds(_python(code))


def test_what_is_printed_is_not_the_list() -> None:
    assert list_workarounds(_python("print('{}')")) == ()
