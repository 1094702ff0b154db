"""The generation loop over exported steps, in the runtime they were exported for."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from exporters.artifacts import FORMAT, Artifact, read_json
from exporters.runtime.prompts import (
    Medium,
    Positions,
    filled_up,
    merge_features,
    without_placeholders,
)
from exporters.skeleton import build_skeleton, describe_model

#: Name of the file beside the steps' folders that tells the steps and the special tokens.
GENERATION_FILE = "generation.json"


#: Name of the step that makes a prompt for the model inside which makes the tokens.
PROMPT_ENCODER = "prompt_encoder"


@dataclass(frozen=True)
class Ending:
    """How sequences begin (``start``: an encoder-decoder's decoder; ``unprompted``: the prompt in place of none), end
    and are filled up, token ids; which tokens are never chosen, and which not at first; and how many tokens a static
    cache has places for."""

    eos: tuple[int, ...]
    pad: int
    start: tuple[int, ...] | None = None
    unprompted: tuple[int, ...] | None = None
    forced_first: int | None = None
    forced_last: int | None = None
    places: int | None = None
    suppressed: tuple[int, ...] = ()
    suppressed_first: tuple[int, ...] = ()


class GenerationExport(dict[str, Any]):
    """The native programs by step: ``prefill`` and ``decode``, and ``encoder`` for an encoder-decoder. In place of the
    prefill of a model that reads pictures or sound there are its parts. Where a model inside makes the tokens, a
    ``prompt_encoder`` before them makes its prompt.

    Attributes:
        artifacts: the same as `Artifact`s.
        ending: the special tokens.
        media: what prompts hold beside text. planes: the first axis of the model's positions (`Positions`).
        model: who is asked for positions in several planes: the model, or one without weights.
    """

    def __init__(
        self,
        artifacts: Mapping[str, Artifact],
        ending: Ending,
        media: Sequence[Medium] = (),
        planes: int = 0,
        model: Any = None,
    ) -> None:
        super().__init__({name: artifact.program for name, artifact in artifacts.items()})
        self.artifacts = dict(artifacts)
        self.ending = ending
        self.media = tuple(media)
        self.planes = planes
        self.model = model
        self._places = max((value.shape[2] for value in self._empty_cache(1).values() if value.dim() == 4), default=0)

    def save(self, folder: Path | str) -> Path:
        """Write a folder for each step, as `Artifact.save` does, and ``generation.json``; returns ``folder``."""
        folder = Path(folder)
        for name, artifact in self.artifacts.items():
            artifact.save(folder / name)
        saved = {
            "format": FORMAT,
            "steps": list(self.artifacts),
            "ending": asdict(self.ending),
            "media": [asdict(medium) for medium in self.media],
            "planes": self.planes,
            "skeleton": describe_model(self.model) if self.planes else None,
        }
        (folder / GENERATION_FILE).write_text(json.dumps(saved, indent=2) + "\n")
        return folder

    @classmethod
    def load(cls, folder: Path | str, *, allow_pickle: bool = False) -> GenerationExport:
        """Read what `save` wrote, in any process; arguments and errors as for `Artifact.load`."""
        file = Path(folder) / GENERATION_FILE
        saved = read_json(file)
        try:
            told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in saved["ending"].items()}
            ending = Ending(**told)
            steps = [str(name) for name in saved["steps"]]
            media = [Medium(**medium) for medium in saved.get("media", ())]
            planes, described = int(saved.get("planes", 0)), saved.get("skeleton")
            if planes and not isinstance(described, dict):
                raise TypeError(f"planes are {planes} and the skeleton is {described!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{file} is damaged ({reason}); export and save anew") from error
        needed = ["embedding", "language_model", "lm_head", "decode"] if media else ["prefill", "decode"]
        needed += [step for medium in media for step in (medium.step, medium.projector) if step is not None]
        if not set(needed) <= set(steps):
            raise ValueError(f"{file} is damaged: it names the steps {steps}, without {' or '.join(needed)}")
        artifacts = {name: Artifact.load(file.parent / name, allow_pickle=allow_pickle) for name in steps}
        return cls(artifacts, ending, media, planes, None if described is None else build_skeleton(described))

    def generate(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        *,
        max_new_tokens: int,
        **others: torch.Tensor,
    ) -> torch.Tensor:
        """Greedy decoding in the artifacts' runtime.

        Args:
            input_ids: (batch, length), int64; the prompt, or what the encoder reads. A model that takes pictures
                without text, as eager, needs none.
            attention_mask: (batch, length), 0 where a token is padding (on the left for a decoder-only model). By
                default 0 where a token is the padding token, unless that ends sequences too.
            max_new_tokens: how many tokens to add at most, at least 1.
            others: what a processor makes beside or in place of ``input_ids``, as at the export.

        Returns:
            What eager's greedy ``generate`` gives: the prompt (for an encoder-decoder its start tokens) and the new
            tokens, (batch, length + new); a sequence that is over is filled up with the padding token.

        Raises:
            TypeError: an input that no step takes.
            ValueError: the inputs do not fit, have padding where the export had no mask, or there are more tokens than
                a static cache has places for.
        """
        if max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {max_new_tokens}")
        prompt = self._prompt(input_ids, attention_mask, others)
        self._require_places(prompt, max_new_tokens)
        sequence = prompt.tokens
        over = torch.zeros(len(sequence), dtype=torch.bool)
        eos = torch.tensor(self.ending.eos, dtype=sequence.dtype)
        steps = self._steps(prompt)
        logits = next(steps)
        for step in range(max_new_tokens):
            token = self._choose(logits, first=step == 0)
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
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        *,
        continuation: torch.Tensor,
        **others: torch.Tensor,
    ) -> torch.Tensor:
        """The logits of every step while ``continuation`` is decoded, whatever the best tokens would be.

        Args:
            input_ids, attention_mask, others: as for `generate`.
            continuation: (batch, new), int64; the last token is not decoded.

        Returns:
            (batch, new, vocabulary): what each token of ``continuation`` was to be chosen from.
        """
        prompt = self._prompt(input_ids, attention_mask, others)
        self._require_places(prompt, continuation.shape[1])
        steps = self._steps(prompt)
        found = [next(steps)]
        found += [steps.send(continuation[:, index]) for index in range(continuation.shape[1] - 1)]
        return torch.stack(found, dim=1)

    def _require_places(self, prompt: _Prompt, new: int) -> None:
        """Raise ``ValueError`` for more tokens than a static cache takes; the last one is not put into it."""
        places, length = self.ending.places, prompt.tokens.shape[1]
        if places is not None and length + new - 1 > places:
            raise ValueError(
                f"{length} tokens and {new} new ones are more than the static cache takes; "
                f"export with a max_length of at least {length + new - 1}, now {places}"
            )

    def _choose(self, logits: torch.Tensor, *, first: bool) -> torch.Tensor:
        never = [*self.ending.suppressed, *(self.ending.suppressed_first if first else ())]
        if never:  # some of which may be no token, as -1
            tokens = torch.arange(logits.shape[-1])
            logits = logits.masked_fill(torch.isin(tokens, torch.tensor(never)), -torch.inf)
        return logits.argmax(-1)

    def _prompt(
        self, input_ids: torch.Tensor | None, mask: torch.Tensor | None, others: Mapping[str, torch.Tensor]
    ) -> _Prompt:
        """What was given, and the tokens that decoding begins with. Raises ``TypeError`` for what no
        step takes, ``ValueError`` for what does not fit."""
        given = {name: value for name, value in others.items() if value is not None}
        if input_ids is not None:
            given["input_ids"] = input_ids
        if mask is not None:
            given["attention_mask"] = mask
        taken = {path for artifact in self.artifacts.values() for path in artifact.input_paths}
        taken |= {"input_ids", "attention_mask", "mm_token_type_ids"}  # these the loop itself may need
        if unknown := sorted(given.keys() - taken):
            raise TypeError(f"no step takes {', '.join(unknown)}")
        first = self.artifacts[next(name for name in self.artifacts if name != PROMPT_ENCODER)]
        reads_ids = "input_ids" in first.input_paths or bool(self.media)
        if PROMPT_ENCODER in self.artifacts:
            given = self._encoded_prompt(given)
            mask = given.get("attention_mask")
            reads_ids = "input_ids" in given  # also where embeddings are read in their place
        main = "input_ids" if reads_ids else first.input_paths[0]
        if main not in given:
            raise ValueError(f"generation starts from {main}; pass it as at the export")
        mask = self._mask_of(given[main]) if mask is None else mask
        given["attention_mask"] = mask
        self._require_mask_taken(self.artifacts.values(), mask)
        tokens = given[main]
        if self.ending.start is not None:
            start = torch.tensor(self.ending.start).expand(len(tokens), -1)
            tokens = given.pop("decoder_input_ids", start)
        elif not bool(mask[:, -1].all()):
            raise ValueError("decoding continues after the last token; pad prompts on the left")
        return _Prompt(given, tokens)

    def _encoded_prompt(self, given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the model hands on to the one inside it that makes the tokens."""
        encoder = self.artifacts[PROMPT_ENCODER]
        self._require_mask_taken([encoder], given.get("attention_mask"))
        text: dict[str, torch.Tensor] = {}
        if "input_ids" in encoder.input_paths and "input_ids" not in given and given and self.ending.unprompted:
            tokens = torch.tensor(self.ending.unprompted).repeat(len(next(iter(given.values()))), 1)
            text = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
        return self._run(PROMPT_ENCODER, {**given, **text})

    def _require_mask_taken(self, artifacts: Iterable[Artifact], mask: torch.Tensor | None) -> None:
        masked = any("attention_mask" in each.input_paths for each in artifacts)
        if not masked and mask is not None and bool((mask == 0).any()):
            raise ValueError("the export had no attention_mask, so its programs take no padding; export with a mask")

    def _mask_of(self, value: torch.Tensor) -> torch.Tensor:
        """The mask that ``generate`` would infer: tokens of padding are masked, unless they may end a sequence too."""
        pad = self.ending.pad
        if value.dim() == 2 and not value.is_floating_point() and self.ending.eos and pad not in self.ending.eos:
            return (value != pad).long()
        return torch.ones(value.shape[0], value.shape[-1], dtype=torch.int64)

    def _steps(self, prompt: _Prompt) -> Generator[torch.Tensor, torch.Tensor, None]:
        """The next tokens' logits, (batch, vocabulary), for each token (batch,) that is sent."""
        mask, state = prompt.given["attention_mask"], dict(prompt.given)
        positions = Positions()
        if self.planes:
            from exporters.multimodal import positions_for

            positions = positions_for(self.model, prompt.given, self.planes)
        if "encoder" in self.artifacts:
            encoded = self._run("encoder", state)
            state |= {f"encoder_outputs.{path}": value for path, value in encoded.items()}
        found = self._read(prompt, state | self._empty_cache(len(prompt.tokens)), positions)
        while True:
            token = yield found["logits"][:, -1]
            if "encoder" not in self.artifacts:  # whose mask stays as it is
                mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            found = self._decode("decode", token[:, None], mask, state | found, positions)

    def _read(self, prompt: _Prompt, state: dict[str, torch.Tensor], positions: Positions) -> dict[str, torch.Tensor]:
        """The prompt's logits and the cache after it."""
        mask = prompt.given["attention_mask"]
        if not self.media:
            return self._decode("prefill", prompt.tokens, mask, state, positions)
        ids = prompt.given["input_ids"]
        embeds = self._run("embedding", {"input_ids": without_placeholders(ids, self.media)})["inputs_embeds"]
        for medium in self.media:
            if not self._is_given(medium, prompt.given):
                continue
            found = self._run(medium.step, state)
            if medium.projector is not None:
                found = self._run(medium.projector, found)
            embeds = merge_features(embeds, ids, medium.token, found["features"])
        read = self._decode("language_model", ids, mask, {**state, "inputs_embeds": embeds}, positions)
        last = self._run("lm_head", {"last_hidden_state": read.pop("last_hidden_state")[:, -1:]})
        return read | last

    def _empty_cache(self, batch: int) -> dict[str, torch.Tensor]:
        """Zeros for the cache that a prefill starts from, where it takes one: a cache of fixed size."""
        prefill = self.artifacts.get("prefill")
        empty: dict[str, torch.Tensor] = {}
        if prefill is None:
            return empty
        for path, dtype in zip(prefill.input_paths, prefill.input_dtypes, strict=True):
            if ".layers." in path and path not in prefill.made:
                axes = [axis for axis in prefill.axes if axis.input == path]
                sizes = [batch if axis.dynamic else axis.lower for axis in axes]
                empty[path] = torch.zeros(sizes, dtype=getattr(torch, dtype))
        return empty

    def _forced(self, step: int, steps: int) -> int | None:
        last = self.ending.forced_last if step == steps - 1 else None
        first = self.ending.forced_first if step == 0 and self.ending.start is not None else None
        return first if last is None else last

    def _is_given(self, medium: Medium, given: Mapping[str, torch.Tensor]) -> bool:
        """Whether a prompt holds what a medium's encoder reads. Raises ``ValueError`` for placeholders without it."""
        encoder = self.artifacts[medium.step]
        needed = [path for path in encoder.input_paths if path not in encoder.made]
        if any(path in given for path in needed):
            return True  # and if something is missing, the encoder's step says so
        if places := int((given["input_ids"] == medium.token).sum()):
            raise ValueError(
                f"the prompt has {places} placeholders (token {medium.token}) and no {' or '.join(needed)} to fill them"
            )
        return False

    def _decode(
        self,
        step: str,
        tokens: torch.Tensor,
        mask: torch.Tensor,
        state: Mapping[str, torch.Tensor],
        positions: Positions,
    ) -> dict[str, torch.Tensor]:
        """A step that reads tokens: with the mask so far and positions, and the rest as an earlier step gave it."""
        made = {"input_ids": tokens, "decoder_input_ids": tokens, "attention_mask": filled_up(mask, self._places)}
        if "position_ids" in self.artifacts[step].input_paths:
            made["position_ids"] = positions.of(mask, tokens.shape[1])
        return self._run(step, {**state, **made})

    def _run(self, step: str, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """One step on what it takes of ``state``; what its preparers make, they make."""
        artifact = self.artifacts[step]
        needed = [path for path in artifact.input_paths if path not in artifact.made]
        if missing := [path for path in needed if path not in state]:
            raise ValueError(f"{step} takes {', '.join(missing)}; pass as at the export")
        given = [name for name in artifact.made if name in state]
        return artifact(**{path: state[path] for path in (*needed, *given)})


@dataclass(frozen=True)
class _Prompt:
    """Everything that was given, the mask among it, and the tokens that decoding begins with, (batch, length)."""

    given: dict[str, torch.Tensor]
    tokens: torch.Tensor
