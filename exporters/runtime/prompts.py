"""What the generation loop makes of prompts between exported steps: merged features and positions. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Medium:
    """One modality that a prompt holds beside text.

    Attributes:
        step: name of the encoder's step, such as ``vision_encoder``.
        token: id of the placeholder that each of its features takes the place of.
        projector: name of the step between encoder and features, if there is one.
    """

    step: str
    token: int
    projector: str | None = None


def merge_features(embeds: torch.Tensor, input_ids: torch.Tensor, token: int, features: torch.Tensor) -> torch.Tensor:
    """``embeds`` (batch, length, width) with ``features`` (places, width), in their order, at the placeholders.

    Raises ``ValueError`` where there are not as many placeholders as features.
    """
    places = input_ids == token
    count = int(places.sum())
    if count != features.shape[0]:
        raise ValueError(f"the prompt has {count} placeholders (token {token}) for {features.shape[0]} features")
    merged = embeds.clone()
    merged[places] = features.to(embeds.dtype)
    return merged


def without_placeholders(input_ids: torch.Tensor, media: Iterable[Medium]) -> torch.Tensor:
    """The ids with 0 for placeholders, some of which lie past the vocabulary; their rows are replaced anyway."""
    for medium in media:
        input_ids = input_ids.masked_fill(input_ids == medium.token, 0)
    return input_ids


def filled_up(mask: torch.Tensor, places: int) -> torch.Tensor:
    """The mask with zeros for the places to come of a cache of fixed size."""
    return torch.nn.functional.pad(mask, (0, max(places - mask.shape[1], 0)))


def positions_of(mask: torch.Tensor, length: int) -> torch.Tensor:
    """Positions of the last ``length`` tokens: how many tokens that are no padding come before each, int64."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]


@dataclass(frozen=True)
class Positions:
    """Positions of a prompt and of what follows it.

    Attributes:
        planes: 0 for plain positions, (batch, length). Otherwise the first axis of the model's positions: 3 for time,
            height and width, 4 with the plain ones before them.
        rope: (3, batch, length), the prompt's positions in time, height and width as the model counts them.
        prompt: (batch, length), the prompt's mask.
    """

    planes: int = 0
    rope: torch.Tensor | None = None
    prompt: torch.Tensor | None = None

    def of(self, mask: torch.Tensor, length: int) -> torch.Tensor:
        """Positions, int64, of the last ``length`` of the tokens so far, which ``mask`` (batch, tokens) tells of."""
        plain = positions_of(mask, length)
        if self.rope is None or self.prompt is None:
            return plain
        if mask.shape == self.prompt.shape:
            rope = self.rope[..., -length:]
        else:  # after the prompt all three go on together, from the farthest that the prompt came to
            ahead = self.rope.amax((0, 2)) + 1 - self.prompt.sum(-1)
            rope = (plain + ahead[:, None]).expand(3, -1, -1)
        return torch.cat([plain[None], rope]) if self.planes == 4 else rope
