"""Images and videos as their models take them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from hfexport_bot.runner.sources.images import image_size, masked_patches, other_sizes, pixel_shape, pixels


def model(modalities: str = "image", token: str = "mask_token", **fields: Any) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(**fields),
        input_modalities=modalities,
        named_parameters=lambda: [(f"embed.{token}", None)],
    )


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_the_size_is_the_configurations_a_number_or_height_and_width() -> None:
    assert image_size(SimpleNamespace(image_size=32)) == (32, 32)
    assert image_size(SimpleNamespace(img_size=[48, 32])) == (48, 32)
    assert image_size(SimpleNamespace()) == (64, 64)


def test_one_of_the_other_sizes_is_no_square() -> None:
    assert other_sizes((32, 32)) == {"image_48": (48, 48), "image_48x40": (48, 40)}


def test_a_video_has_its_frames_before_its_channels() -> None:
    assert pixel_shape(model(num_channels=1), 2, (8, 6)) == (2, 1, 8, 6)
    assert pixel_shape(model("video", num_frames=6), 2, (8, 6)) == (2, 6, 3, 8, 6)


def test_pixels_are_smooth_with_some_noise() -> None:
    image = pixels((2, 3, 64, 64), generator())
    assert image.shape == (2, 3, 64, 64)
    neighbours = (image[..., 1:] - image[..., :-1]).square().mean()
    strangers = (image - image.flip(0)).square().mean()
    assert 0.1 < neighbours < strangers / 2


def test_masks_are_for_models_with_a_token_for_them_and_a_videos_rows_have_as_many_patches() -> None:
    mask = masked_patches(model(patch_size=8), 3, (32, 16), generator())
    assert mask is not None
    assert mask.shape == (3, 8)
    assert 0 < int(mask.sum()) < 24
    video = masked_patches(model("video", patch_size=8, num_frames=4, tubelet_size=2), 2, (32, 16), generator())
    assert video is not None
    assert video.shape == (2, 16)
    assert video.sum(dim=1).tolist() == [8, 8]
    assert not torch.equal(video[0], video[1])
    assert masked_patches(model(token="cls_token", patch_size=8), 2, (32, 32), generator()) is None
