from __future__ import annotations

import torch

from hfexport_bot.runner.sources.probes import derive_probes, padded

PAD = 0


def text(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    ids = torch.arange(1, 17).reshape(2, 8)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **more}


def test_right_padding_keeps_the_last_token_before_the_padding() -> None:
    inputs = text()
    probe = padded(inputs, row=0, side="right", pad_token_id=PAD)
    assert probe is not None
    assert probe["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 0, 0, 0], [1] * 8]
    assert probe["input_ids"][0].tolist() == [1, 2, 3, 4, 8, PAD, PAD, PAD]
    assert torch.equal(probe["input_ids"][1], inputs["input_ids"][1])
    assert inputs["attention_mask"].all()
    assert inputs["input_ids"][0, -1] == 8


def test_left_padding_keeps_the_last_token_last() -> None:
    probe = padded(text(), row=-1, side="left", pad_token_id=PAD)
    assert probe is not None
    assert probe["attention_mask"].tolist() == [[1] * 8, [0, 0, 0, 1, 1, 1, 1, 1]]
    assert probe["input_ids"][1].tolist() == [PAD, PAD, PAD, 9, 10, 11, 12, 16]


def test_an_encoder_mask_goes_before_the_decoder_one() -> None:
    mask = torch.ones(2, 6, dtype=torch.int64)
    probe = padded(text(decoder_attention_mask=mask), row=0, side="right", pad_token_id=PAD)
    assert probe is not None
    assert probe["decoder_attention_mask"].all()
    alone = padded({"decoder_attention_mask": mask}, row=0, side="left", pad_token_id=None)
    assert alone is not None
    assert alone["decoder_attention_mask"][0].tolist() == [0, 0, 1, 1, 1, 1]


def test_no_padding_without_a_mask_or_with_one_row() -> None:
    assert padded({"pixel_values": torch.ones(2, 3, 8, 8)}, row=0, side="left", pad_token_id=PAD) is None
    single = {name: value[:1] for name, value in text().items()}
    assert padded(single, row=0, side="left", pad_token_id=PAD) is None


def test_batches_are_cut_and_grown_along_the_axis_all_share() -> None:
    probes = derive_probes(text(pixel_values=torch.rand(2, 3, 4, 4)))
    assert {value.shape[0] for value in probes["batch_1"].values()} == {1}
    assert {value.shape[0] for value in probes["batch_3"].values()} == {3}


def test_packed_inputs_have_no_batch_to_cut() -> None:
    assert "batch_1" not in derive_probes(text(pixel_values=torch.rand(32, 12)))
    assert "batch_1" not in derive_probes({**text(), "cache": (torch.ones(2, 3),)})


def test_sequences_grow_and_shrink_between_their_first_and_last_position() -> None:
    probes = derive_probes(text(bbox=torch.rand(2, 8, 4)))
    assert probes["length_10"]["input_ids"][0].tolist() == [1, 2, 3, 4, 5, 6, 7, 2, 3, 8]
    assert probes["length_6"]["input_ids"][1].tolist() == [9, 10, 11, 12, 13, 16]
    assert {name: tuple(value.shape) for name, value in probes["length_10"].items()} == {
        "input_ids": (2, 10),
        "attention_mask": (2, 10),
        "bbox": (2, 10, 4),
    }


def test_a_decoder_grows_by_another_number() -> None:
    probes = derive_probes(text(decoder_input_ids=torch.ones(2, 5, dtype=torch.int64)))
    shapes = {name: tuple(value.shape) for name, value in probes["length_10"].items()}
    assert shapes == {"input_ids": (2, 10), "attention_mask": (2, 10), "decoder_input_ids": (2, 6)}
    alone = derive_probes({"decoder_input_ids": torch.ones(2, 5, dtype=torch.int64)})
    assert alone["length_4"]["decoder_input_ids"].shape == (2, 4)


def test_multiple_choice_sequences_lie_along_the_last_axis() -> None:
    probes = derive_probes({"input_ids": torch.ones(2, 3, 8, dtype=torch.int64)})
    assert probes["length_10"]["input_ids"].shape == (2, 3, 10)


def test_short_sequences_keep_their_length() -> None:
    assert set(derive_probes({"input_ids": torch.ones(2, 3, dtype=torch.int64)})) == {"batch_1", "batch_3"}


def test_an_image_grows_with_its_mask() -> None:
    inputs = {"pixel_values": torch.rand(2, 3, 4, 6), "pixel_mask": torch.ones(2, 4, 6), "labels": torch.ones(2, 6)}
    larger = derive_probes(inputs)["image_8x12"]
    assert {name: tuple(value.shape) for name, value in larger.items()} == {
        "pixel_values": (2, 3, 8, 12),
        "pixel_mask": (2, 8, 12),
        "labels": (2, 6),
    }
    assert torch.equal(larger["pixel_values"][..., ::2, ::2], inputs["pixel_values"])


def test_a_waveform_is_padded_by_more_than_one_feature_vector() -> None:
    probe = padded({"attention_mask": torch.ones(2, 800, dtype=torch.int64)}, row=0, side="right", pad_token_id=None)
    assert probe is not None
    assert probe["attention_mask"].sum(-1).tolist() == [500, 800]
