"""The generation loop over exported steps, in the runtime they were exported for."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from exporters.artifacts import FORMAT, Artifact, read_json

#: Name of the file beside the steps' folders that tells the steps and the special tokens.
GENERATION_FILE = "generation.json"


@dataclass(frozen=True)
class Ending:
    """How sequences begin, end and are filled up, token ids; and how many tokens a static cache has places for."""

    eos: tuple[int, ...]
    pad: int
    start: int | None = None
    forced_first: int | None = None
    forced_last: int | None = None
    places: int | None = None


class GenerationExport(dict[str, Any]):
    """The native programs by step: ``prefill`` and ``decode``, and ``encoder`` for an encoder-decoder.

    Attributes:
        artifacts: the same as `Artifact`s.
        ending: the special tokens.
    """

    def __init__(self, artifacts: Mapping[str, Artifact], ending: Ending) -> None:
        super().__init__({name: artifact.program for name, artifact in artifacts.items()})
        self.artifacts = dict(artifacts)
        self.ending = ending
        self._places = max((value.shape[2] for value in self._empty_cache(1).values() if value.dim() == 4), default=0)

    def save(self, folder: Path | str) -> Path:
        """Write a folder for each step, as `Artifact.save` does, and ``generation.json``; returns ``folder``."""
        folder = Path(folder)
        for name, artifact in self.artifacts.items():
            artifact.save(folder / name)
        saved = {"format": FORMAT, "steps": list(self.artifacts), "ending": asdict(self.ending)}
        (folder / GENERATION_FILE).write_text(json.dumps(saved, indent=2) + "\n")
        return folder

    @classmethod
    def load(cls, folder: Path | str, *, allow_pickle: bool = False) -> GenerationExport:
        """Read what `save` wrote, in any process; arguments and errors as for `Artifact.load`."""
        file = Path(folder) / GENERATION_FILE
        saved = read_json(file)
        try:
            ending = Ending(**{**saved["ending"], "eos": tuple(saved["ending"]["eos"])})
            steps = [str(name) for name in saved["steps"]]
        except (KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{file} is damaged ({reason}); export and save anew") from error
        if "prefill" not in steps or "decode" not in steps:
            raise ValueError(f"{file} is damaged: it names the steps {steps}, without prefill or decode")
        return cls({name: Artifact.load(file.parent / name, allow_pickle=allow_pickle) for name in steps}, ending)

    def generate(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *, max_new_tokens: int
    ) -> torch.Tensor:
        """Greedy decoding in the artifacts' runtime.

        Args:
            input_ids: (batch, length), int64; the prompt, or what the encoder reads.
            attention_mask: (batch, length), 0 where a token is padding (on the left for a decoder-only model). Ones by
                default.
            max_new_tokens: how many tokens to add at most, at least 1.

        Returns:
            What eager's greedy ``generate`` gives: the prompt (for an encoder-decoder the start token) and the new
            tokens, (batch, length + new); a sequence that is over is filled up with the padding token.

        Raises:
            ValueError: the inputs do not fit, have padding where the export had no mask, or there are more tokens than
                a static cache has places for.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        self._require_places(input_ids, max_new_tokens)
        sequence = self._first_tokens(input_ids)
        over = torch.zeros(len(sequence), dtype=torch.bool)
        eos = torch.tensor(self.ending.eos, dtype=sequence.dtype)
        steps = self._steps(input_ids, attention_mask)
        logits = next(steps)
        for step in range(max_new_tokens):
            token = logits.argmax(-1)
            forced = self._forced(step, max_new_tokens)
            token = token if forced is None else torch.full_like(token, forced)
            token = torch.where(over, self.ending.pad, token)
            sequence = torch.cat([sequence, token[:, None]], dim=1)
            over |= torch.isin(token, eos)
            if bool(over.all()) or step == max_new_tokens - 1:
                break
            logits = steps.send(token)
        return sequence

    def logits(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *, continuation: torch.Tensor
    ) -> torch.Tensor:
        """The logits of every step while ``continuation`` is decoded, whatever the best tokens would be.

        Args:
            input_ids, attention_mask: as for `generate`.
            continuation: (batch, new), int64; the last token is not decoded.

        Returns:
            (batch, new, vocabulary): what each token of ``continuation`` was to be chosen from.
        """
        self._require_places(input_ids, continuation.shape[1])
        steps = self._steps(input_ids, attention_mask)
        found = [next(steps)]
        found += [steps.send(continuation[:, index]) for index in range(continuation.shape[1] - 1)]
        return torch.stack(found, dim=1)

    def _require_places(self, input_ids: torch.Tensor, new: int) -> None:
        """Raise ``ValueError`` for more tokens than a static cache takes; the last one is not put into it."""
        places = self.ending.places
        if places is not None and input_ids.shape[1] + new - 1 > places:
            raise ValueError(
                f"{input_ids.shape[1]} tokens and {new} new ones are more than the static cache takes; "
                f"export with a max_length of at least {input_ids.shape[1] + new - 1}, now {places}"
            )

    def _first_tokens(self, input_ids: torch.Tensor) -> torch.Tensor:
        if "encoder" not in self.artifacts:
            return input_ids
        return torch.full((len(input_ids), 1), self.ending.start or 0, dtype=input_ids.dtype)

    def _steps(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> Generator[torch.Tensor, torch.Tensor, None]:
        """The next tokens' logits, (batch, vocabulary), for each token (batch,) that is sent."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if not any("attention_mask" in each.input_paths for each in self.artifacts.values()) and bool(
            (mask == 0).any()
        ):
            raise ValueError("the export had no attention_mask, so its programs take no padding; export with a mask")
        tokens = self._first_tokens(input_ids)
        state: dict[str, torch.Tensor] = {}
        if "encoder" in self.artifacts:
            encoded = self._run("encoder", input_ids, mask, {})
            state = {f"encoder_outputs.{path}": value for path, value in encoded.items()}
        found = self._run("prefill", tokens, mask, state | self._empty_cache(len(tokens)))
        while True:
            token = yield found["logits"][:, -1]
            if "encoder" not in self.artifacts:  # whose mask stays as it is
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            found = self._run("decode", token[:, None], mask, state | found)

    def _empty_cache(self, batch: int) -> dict[str, torch.Tensor]:
        """Zeros for the cache that a prefill starts from, where it takes one: a cache of fixed size."""
        prefill = self.artifacts["prefill"]
        empty = {}
        for path, dtype in zip(prefill.input_paths, prefill.input_dtypes, strict=True):
            if ".layers." in path:
                axes = [axis for axis in prefill.axes if axis.input == path]
                sizes = [batch if axis.dynamic else axis.lower for axis in axes]
                empty[path] = torch.zeros(sizes, dtype=getattr(torch, dtype))
        return empty

    def _forced(self, step: int, steps: int) -> int | None:
        last = self.ending.forced_last if step == steps - 1 else None
        first = self.ending.forced_first if step == 0 and self.ending.start is not None else None
        return first if last is None else last

    def _run(
        self, step: str, tokens: torch.Tensor, mask: torch.Tensor, state: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """One step: tokens, the mask, positions, and from ``state`` what an earlier step gave under the same name."""
        artifact = self.artifacts[step]
        made = {"input_ids": tokens, "decoder_input_ids": tokens, "attention_mask": filled_up(mask, self._places)}
        if "position_ids" in artifact.input_paths:
            made["position_ids"] = positions_of(mask, tokens.shape[1])
        return artifact(**{path: made[path] if path in made else state[path] for path in artifact.input_paths})


def filled_up(mask: torch.Tensor, places: int) -> torch.Tensor:
    """The mask with zeros for the places to come of a cache of fixed size."""
    return torch.nn.functional.pad(mask, (0, max(places - mask.shape[1], 0)))


def positions_of(mask: torch.Tensor, length: int) -> torch.Tensor:
    """Positions of the last ``length`` tokens: how many tokens that are no padding come before each, int64."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)[:, -length:]
