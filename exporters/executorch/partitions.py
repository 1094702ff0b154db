"""Stage ``executorch_patches``: partitions for a delegate that can all be cut out of one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from exporters.registry import register_patch


@register_patch(
    "executorch",
    "executorch.exir.backend.canonical_partitioners.group_partitioner.GroupBasedPartitioner._merge_partitions",
    model_change="call a layer once, on what it is needed for together: a weight of two calls keeps them apart",
)
def _patch_partitions_that_wait_for_each_other(original: Callable[..., Any]) -> Callable[..., Any]:
    """ExecuTorch merges partitions by the paths between single nodes, and so makes two that wait for each other.

    A partition needs all its inputs before it gives its first output. Paths are followed through whole partitions here.
    """

    def merge(self: Any, partitions: dict[int, Any], *others: Any) -> None:
        can_merge = self._can_merge_partitions

        def can_merge_and_run(first: int, second: int, partitions: Mapping[int, Any]) -> bool:
            if not can_merge(first, second, partitions):
                return False
            merged = {*partitions[first].nodes, *partitions[second].nodes}
            return not _comes_back(merged, [partition.nodes for partition in partitions.values()])

        self._can_merge_partitions = can_merge_and_run
        original(self, partitions, *others)

    return merge


def _comes_back(merged: set[torch.fx.Node], partitions: list[Mapping[torch.fx.Node, Any]]) -> bool:
    """Whether a path that leaves ``merged`` enters it again, where a partition passes on what enters it anywhere."""
    home = {node: nodes for nodes in partitions for node in nodes}
    waiting = [user for node in merged for user in node.users if user not in merged]
    seen: set[torch.fx.Node] = set()
    while waiting:
        node = waiting.pop()
        if node in merged:
            return True
        if node not in seen:
            together = home.get(node, (node,))
            seen.update(together)
            waiting += [user for part in together for user in part.users if user not in seen]
    return False
