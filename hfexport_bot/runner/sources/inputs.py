"""Inputs for a model from the signature of its forward.

A builder per argument name makes a tensor of the usual layout, or None where the model does not take part in it.
Arguments without a builder (labels, caches, embeddings in place of ids, switches) are left out; one that forward
requires makes the case unavailable. Table of what is decided by a class's name rather than by its signature:

- ``*ForMultipleChoice`` (and whatever takes ``mc_token_ids``): ids have a choices axis, [batch, choices, length].
- ``*ForSequenceClassification`` with a decoder: the model makes the decoder's ids from the encoder's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from hfexport_bot.runner.sources import images, layouts, media, sound
from hfexport_bot.runner.sources.cases import Inputs, Unavailable
from hfexport_bot.runner.sources.configs import find_field
from hfexport_bot.runner.sources.images import (
    Size,
    image_size,
    masked_patches,
    other_sizes,
    pixel_shape,
    pixels,
    video_shape,
)
from hfexport_bot.runner.sources.media import Layout, Pictures, media_layouts, needed_modalities, pixels_laid_out
from hfexport_bot.runner.sources.probes import padded, padding_probes
from hfexport_bot.runner.sources.sound import Features, Waveform
from hfexport_bot.runner.sources.vocabulary import ordinary_tokens
from hfexport_bot.schema import UnavailableCause


@dataclass(frozen=True)
class Sizes:
    """Sizes of the axes that may vary. No two are alike, so that a mixed-up axis shows."""

    batch: int = 2
    length: int = 8  # tokens; an encoder's where there are two sequences
    decoder_length: int = 6
    choices: int = 3
    image: Size | None = None  # pixels; None: the configuration's
    frames: int | None = None  # of a spectrogram; None: what the configuration's positions hold
    samples: int = sound.SAMPLES  # of a waveform


#: Tokens of the longest probe; the configurations have 64 positions.
_LONG = 40


def build_inputs(model: torch.nn.Module, seed: int, pictures: int = 1) -> tuple[Inputs, dict[str, Inputs]]:
    """The traced inputs of ``model`` and its probes, with so many ``pictures`` in each row's text.

    Runs the model only to find out how a spectrogram lies and how many placeholders an image needs. Raises
    ``Unavailable`` (unknown inputs) where forward requires what no builder knows, or images would not be fed.
    """
    plan, inputs = make_plan(model, seed, pictures)
    return inputs, _probes(plan, inputs, seed)


def make_plan(model: torch.nn.Module, seed: int, pictures: int = 1) -> tuple[Plan, Inputs]:
    """The plan of what ``model`` is fed, and the traced inputs made by it; errors as for `build_inputs`.

    Where media may lie in more than one way, the first way that eager runs with; the usual one where it runs with none.
    """
    plans = [Plan(model, layout, pictures) for layout in media_layouts(model)]
    refused: list[Unavailable] = []
    usual: tuple[Plan, Inputs] | None = None
    for plan in plans:
        try:
            inputs = plan.build(Sizes(), seed)
        except Unavailable as error:
            refused.append(error)
            continue
        if len(plans) == 1 or _runs(model, inputs):
            return plan, inputs
        usual = usual or (plan, inputs)
    if usual is None:
        raise refused[0]
    return usual


def _probes(plan: Plan, inputs: Inputs, seed: int) -> dict[str, Inputs]:
    traced = Sizes()
    pad = find_field(plan.config, "pad_token_id")
    longer = replace(traced, length=traced.length + 3, decoder_length=traced.decoder_length + 1)
    shorter = replace(traced, length=traced.length - 3, decoder_length=traced.decoder_length - 2)
    # Past windows, buckets and what else changes only in longer sequences.
    long = replace(traced, length=_LONG, decoder_length=_LONG - 10)
    # Named by the length of the only sequence where that is the decoder's.
    named = "decoder_length" if "decoder_input_ids" in inputs and "input_ids" not in inputs else "length"
    sized = {
        "batch_1": replace(traced, batch=1),
        "batch_3": replace(traced, batch=3),
        f"length_{getattr(longer, named)}": longer,
        f"length_{getattr(shorter, named)}": shorter,
        f"length_{getattr(long, named)}": long,
    }
    if any(name == "pixel_values" or images.ONE_OF_SEVERAL.fullmatch(name) for name in inputs):
        for name, size in other_sizes(plan.image(traced)).items():
            sized[name] = replace(traced, image=size)
    if "input_features" in inputs:
        frames = plan.frames(traced)
        sized[f"audio_{frames + frames // 2}"] = replace(traced, frames=frames + frames // 2)
    if "input_values" in inputs:
        sized[f"audio_{sound.OTHER_SAMPLES}"] = replace(traced, samples=sound.OTHER_SAMPLES)
    probes = {}
    for offset, (name, sizes) in enumerate(sized.items(), start=1):
        probe = plan.build(sizes, seed + offset)
        if any(probe[key].shape != inputs[key].shape for key in inputs):
            probes[name] = probe
    probes.update(padding_probes(inputs, pad))
    if padded_image := layouts.padded_image(inputs):
        probes["pad_image"] = padded_image
    both = plan.build(replace(longer, batch=3), seed + len(sized) + 1)
    mixed = padded(both, row=0, side="right", pad_token_id=pad)
    mixed = mixed and padded(mixed, row=-1, side="left", pad_token_id=pad)
    if mixed:
        probes[f"batch_3_length_{getattr(longer, named)}_padded"] = mixed
    return probes


def _runs(model: torch.nn.Module, inputs: Inputs) -> bool:
    try:
        with torch.no_grad():
            model(**inputs)
    except Exception:  # whatever forward raises, it refuses this layout
        return False
    return True


class Plan:
    """Which arguments a model is fed, and how each is made at given sizes."""

    def __init__(self, model: torch.nn.Module, layout: Layout, pictures: int = 1) -> None:
        self.model = model
        self.pictures = pictures
        self.config: Any = model.config
        self.layout = layout
        self.parameters = inspect.signature(type(model).forward).parameters
        class_name = type(model).__name__
        self.has_choices = class_name.endswith("ForMultipleChoice") or "mc_token_ids" in self.parameters
        self.makes_decoder_ids = class_name.endswith("ForSequenceClassification")
        self.codebooks = sound.codebooks(model)
        self.ordinary = ordinary_tokens(model)

    def build(self, sizes: Sizes, seed: int) -> Inputs:
        generator = torch.Generator().manual_seed(seed)
        inputs: Inputs = {}
        for name, parameter in list(self.parameters.items())[1:]:
            builder = Plan.pixel_values if images.ONE_OF_SEVERAL.fullmatch(name) else _BUILDERS.get(name)
            value = builder(self, sizes, generator) if builder else None
            if value is not None:
                inputs[name] = value
            elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
                raise self._unknown(f"forward requires {name!r}, which cannot be guessed")
        self._check_all_fed(inputs)
        if self.pictures > 1 and not {"input_ids", "pixel_values"} <= inputs.keys():
            raise self._unknown("there are no pictures in its text")
        complete = media.with_placeholders(self.model, inputs, self.pictures)
        if complete is None and sizes == Sizes():
            raise self._unknown("how many placeholders its pictures or its sound need among input_ids")
        return complete or inputs  # eager refuses a probe that it has no features for, and says why

    def frames(self, sizes: Sizes) -> int:
        if sizes.frames is not None:
            return sizes.frames
        if window := find_field(self.config, "n_window"):
            return 2 * int(window)
        positions = find_field(self.config, "max_source_positions")
        # Models that take channels first halve the frames once and then need every position filled.
        return 2 * positions if self.layout.features is Features.CHANNELS_FIRST and positions else 32

    def samples(self, sizes: Sizes) -> int:
        return sizes.samples if self.layout.scale == 1 else sizes.samples * 24 // 5  # a multiple of usual frames

    def image(self, sizes: Sizes) -> Size:
        if sizes.image is not None:
            return sizes.image
        height, width = image_size(self.config)
        return self.layout.scale * height, self.layout.scale * width

    def _check_all_fed(self, inputs: Inputs) -> None:
        """A model that would quietly run without its image or its sound has not been fed."""
        main = getattr(self.model, "main_input_name", "input_ids")
        if main in self.parameters and main not in inputs:
            raise self._unknown(f"the main input {main!r} cannot be guessed")
        if not inputs:
            names = ", ".join(list(self.parameters)[1:])
            raise self._unknown(f"none of forward's arguments can be guessed: {names}")

    def _unknown(self, message: str) -> Unavailable:
        return Unavailable(UnavailableCause.UNKNOWN_INPUTS, f"{type(self.model).__name__}: {message}")

    def _text_shape(self, sizes: Sizes) -> tuple[int, ...]:
        choices = (sizes.choices,) if self.has_choices else ()
        return (sizes.batch, *choices, sizes.length)

    def _tokens(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return self.ordinary[torch.randint(len(self.ordinary), shape, generator=generator)]

    # Builders. Shapes: [batch, (choices,) length] unless another is given; ids are int64, features float32.

    def input_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        shape = self._text_shape(sizes)
        if "encoder_hidden_states" in self.parameters:  # a decoder alone
            shape = (shape[0] * self.codebooks, *shape[1:])
        ids = self._tokens(shape, generator)
        end = find_field(self.config, "eos_token_id")
        end = end[0] if isinstance(end, list) and end else end
        if isinstance(end, int) and end != find_field(self.config, "pad_token_id"):
            ids[..., -1] = end  # some models pool at the end of the text
        return ids

    def attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        if "input_ids" in self.parameters:
            return torch.ones(self._text_shape(sizes), dtype=torch.int64)
        if sound.takes_states(self.model):
            return torch.ones(sizes.batch, sizes.length, dtype=torch.int64)
        if "input_values" in self.parameters:
            return torch.ones(sizes.batch, self.samples(sizes), dtype=torch.int64)
        return None  # over patches or spectrograms: layouts differ, and most models ignore it

    def token_type_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        types = find_field(self.config, "type_vocab_size")
        if not types or types < 2:
            return None
        return torch.randint(types, self._text_shape(sizes), generator=generator)

    def mc_token_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(sizes.length, (sizes.batch, sizes.choices), generator=generator)

    def decoder_input_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        if self.makes_decoder_ids:
            return None
        ids = self._tokens((sizes.batch * self.codebooks, sizes.decoder_length), generator)
        start = find_field(self.config, "decoder_start_token_id")
        if isinstance(start, int):
            ids[:, 0] = start
        return ids

    def decoder_attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        decodes = {"decoder_input_ids", "decoder_input_values"} & self.parameters.keys()
        if self.makes_decoder_ids or not decodes:
            return None
        return torch.ones(sizes.batch, sizes.decoder_length, dtype=torch.int64)

    def pixel_values(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """Laid out as `Pictures` tells."""
        if images.takes_videos(self.model) and "pixel_values_videos" in self.parameters:
            return None
        return self._pixels(sizes, generator)

    def pixel_values_videos(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, frames, channels, height, width], for a model that has nothing else to see."""
        if "video" not in needed_modalities(type(self.model)):
            return None
        return pixels(video_shape(self.model, sizes.batch, self.image(sizes)), generator)

    def grid_patches(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """The patches of a picture encoder whose forward names them as states."""
        return self.pixel_values(sizes, generator) if "grid_thw" in self.parameters else None

    def high_res_pixel_values(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        size = image_size(self.config.high_res_vision_config)
        return pixels(pixel_shape(self.model, sizes.batch, size), generator)

    def pixel_attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, pictures, height, width] of int64, or [batch, patches]."""
        if self.layout.pictures is Pictures.SHAPED_PATCHES:
            return torch.ones(self._patches(sizes).shape[:2], dtype=torch.int64)
        several = (media.PICTURES,) if self.layout.pictures is Pictures.SEVERAL else ()
        return torch.ones(sizes.batch, *several, *self.image(sizes), dtype=torch.int64)

    def spatial_shapes(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[pictures, 2] of int64: patches down and across."""
        return self._grid(sizes)[:, 1:] if self.layout.pictures is Pictures.SHAPED_PATCHES else None

    def patch_position_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[pictures, patches, 2] of int64: across and down."""
        if self.layout.pictures is not Pictures.SHAPED_PATCHES:
            return None
        return media.positions_of(self._grid(sizes))

    def image_sizes(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[pictures, 2] of int64: height and width in pixels."""
        if not self.layout.sized:
            return None
        count = self.pictures * sizes.batch * (media.PICTURES if self.layout.pictures is Pictures.SEVERAL else 1)
        return torch.tensor([self.image(sizes)]).expand(count, -1).clone()

    def image_grid_thw(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return self._grid(sizes) if media.takes_grid(self.parameters) else None

    def merge_sizes(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        """[pictures] of int64: patches a side that become one feature."""
        return torch.full((self.pictures * sizes.batch,), find_field(self.config, "spatial_merge_size") or 2)

    def target_sizes(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[pictures, 2] of int64: patches down and across."""
        return self._grid(sizes)[:, 1:] if self.layout.pictures is Pictures.STRIP else None

    def image_attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, length, pictures] of int64: which pictures a token sees."""
        if self.layout.pictures is not Pictures.SEVERAL:
            return None
        return torch.ones(sizes.batch, sizes.length, media.PICTURES, dtype=torch.int64)

    def _grid(self, sizes: Sizes) -> torch.Tensor:
        return media.grid_of(
            self.pictures * sizes.batch, larger=sizes.image is not None, alike=self.layout.pictures in media.ALIKE
        )

    def _patches(self, sizes: Sizes) -> torch.Tensor:
        return self._pixels(sizes, torch.Generator())

    def _pixels(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        larger = sizes.image is not None
        return pixels_laid_out(
            self.model, self.layout.pictures, self.pictures * sizes.batch, self.image(sizes), larger, generator
        )

    def bool_masked_pos(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, patches] of bool, for models that have a token to put in a masked patch's place."""
        return masked_patches(self.model, sizes.batch, self.image(sizes), generator)

    def input_features(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        """Laid out as `Features` tells."""
        return sound.features(self.config, self.layout.features, sizes.batch, self.frames(sizes), generator)

    def features_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, frames] of ones."""
        if self.layout.mask is None:
            return None
        return torch.ones(sizes.batch, self.frames(sizes), dtype=self.layout.mask)

    def padding_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        """[batch, samples] or [batch, frames] of int64, of the sound."""
        if "input_values" in self.parameters:
            return None if self.codebooks > 1 else torch.ones(sizes.batch, self.samples(sizes), dtype=torch.int64)
        return self.features_mask(sizes, generator) if "input_features" in self.parameters else None

    def input_values(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        values = sound.input_values(self.model, sizes.batch, self.samples(sizes), sizes.length, generator)
        if values is None or self.layout.waveform is Waveform.PLAIN:
            return values
        if self.layout.waveform is Waveform.CHANNEL:
            return values.unsqueeze(1)
        frames = find_field(self.config, "max_length") or self.frames(sizes)
        return sound.features(self.config, Features.CHANNELS_LAST, sizes.batch, frames, generator)

    def qformer_input_ids(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        return self._tokens((sizes.batch, sizes.decoder_length), generator)

    def qformer_attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        return torch.ones(sizes.batch, sizes.decoder_length, dtype=torch.int64)

    def decoder_input_values(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return sound.decoder_input_values(self.model, sizes.batch, sizes.decoder_length, generator)

    def speaker_embeddings(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return sound.speaker_embeddings(self.model, sizes.batch, generator)

    def encoder_hidden_states(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return sound.encoder_hidden_states(self.model, sizes.batch, sizes.decoder_length, generator)

    def encoder_attention_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return sound.encoder_attention_mask(self.model, sizes.batch, sizes.decoder_length)

    def bbox(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.bbox(self.config, sizes.batch, sizes.length, generator)

    def pixel_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.pixel_mask(self.pixel_values(sizes, generator))

    def input_points(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor:
        return layouts.input_points(sizes.batch, sizes.choices, sizes.length, self.image(sizes)[0], generator)

    def input_labels(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.input_labels(sizes.batch, sizes.choices, sizes.length, generator)

    def past_values(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.past_values(self.config, sizes.batch, generator)

    def observed_mask(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.observed_mask(self.config, sizes.batch)

    def past_time_features(self, sizes: Sizes, generator: torch.Generator) -> torch.Tensor | None:
        return layouts.time_features(self.config, sizes.batch, generator)


_BUILDERS: dict[str, Callable[[Plan, Sizes, torch.Generator], torch.Tensor | None]] = {
    "input_ids": Plan.input_ids,
    "attention_mask": Plan.attention_mask,
    "token_type_ids": Plan.token_type_ids,
    "mc_token_ids": Plan.mc_token_ids,
    "decoder_input_ids": Plan.decoder_input_ids,
    "decoder_attention_mask": Plan.decoder_attention_mask,
    "pixel_values": Plan.pixel_values,
    "pixel_values_videos": Plan.pixel_values_videos,
    "high_res_pixel_values": Plan.high_res_pixel_values,
    "hidden_states": Plan.grid_patches,
    "pixel_attention_mask": Plan.pixel_attention_mask,
    "spatial_shapes": Plan.spatial_shapes,
    "image_position_ids": Plan.patch_position_ids,
    "pixel_position_ids": Plan.patch_position_ids,
    "image_sizes": Plan.image_sizes,
    "target_sizes": Plan.target_sizes,
    "image_attention_mask": Plan.image_attention_mask,
    "image_grid_thw": Plan.image_grid_thw,
    "grid_thw": Plan.image_grid_thw,
    "image_merge_sizes": Plan.merge_sizes,
    "merge_sizes": Plan.merge_sizes,
    "bool_masked_pos": Plan.bool_masked_pos,
    "input_features": Plan.input_features,
    "input_features_mask": Plan.features_mask,
    "feature_attention_mask": Plan.features_mask,
    "padding_mask": Plan.padding_mask,
    "input_values": Plan.input_values,
    "qformer_input_ids": Plan.qformer_input_ids,
    "qformer_attention_mask": Plan.qformer_attention_mask,
    "bbox": Plan.bbox,
    "pixel_mask": Plan.pixel_mask,
    "input_points": Plan.input_points,
    "input_labels": Plan.input_labels,
    "past_values": Plan.past_values,
    "past_time_features": Plan.past_time_features,
    "past_observed_mask": Plan.observed_mask,
    "observed_mask": Plan.observed_mask,
    "decoder_input_values": Plan.decoder_input_values,
    "speaker_embeddings": Plan.speaker_embeddings,
    "encoder_hidden_states": Plan.encoder_hidden_states,
    "encoder_attention_mask": Plan.encoder_attention_mask,
}
