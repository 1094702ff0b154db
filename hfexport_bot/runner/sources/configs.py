"""A tiny configuration from any configuration class.

Every dimension of one kind (width, heads, layers, ...) gets one value, wherever its field occurs, so that fields which
must agree do. Kinds are told by field names; a field that is of no kind keeps its default, and one whose default is
None is left for the class to derive.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hfexport_bot.runner.sources.cases import Unavailable, unavailable
from hfexport_bot.runner.sources.kinds import (
    VOCABULARY,
    derived_value,
    kind_value,
    open_value,
    smaller,
    tiny_members,
    tiny_value,
)
from hfexport_bot.schema import UnavailableCause

_SPECIAL_TOKEN = re.compile(r"(\w+_)?token_(id|ids|index)|(\w+_)?suppress_tokens")
_MAX_LAYERS = 8
_DEPTHS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers")
#: What is keyed by layers that a tiny configuration does not have; the class makes its own.
_OF_FULL_DEPTH = ("per_layer_config",)
#: Sub-configurations without which a model takes less than it can.
_TOWERS = ("vision_config", "audio_config", "text_config")
#: Tokens that stand for pictures and sound, or stand around them.
_MEDIA_TOKEN = re.compile(r"(image|video|audio|vision)\w*_token_(id|index)")
#: What a ``config.json`` says besides the fields of its class.
_NOT_FIELDS = (
    "architectures",
    "auto_map",
    "dtype",
    "model_type",
    "torch_dtype",
    "transformers_version",
    "_name_or_path",
)


class CyclicConfig(ValueError):
    """A configuration that holds itself."""


@dataclasses.dataclass(frozen=True)
class _Manner:
    """How to shrink: where special tokens move, and how hard what is of no kind shrinks as well (`kinds.smaller`)."""

    moved: dict[int, int]
    harder: int


def tiny_config(config_class: Any, given: Mapping[str, Any] | None = None, *, harder: int = 0) -> Any:
    """An instance of ``config_class`` with every dimension small.

    Special tokens move into the small vocabulary. ``given``: what a ``config.json`` says; its structure is kept, its
    sizes shrink. ``harder``: for a model that is too big otherwise, up to `HARDEST`; large numbers of no kind too.
    Raises ``Unavailable`` (invalid config, missing library, hub access) with the class's own error.
    """
    _require_config_class(config_class)
    said = {name: value for name, value in (given or {}).items() if name not in _NOT_FIELDS}
    try:
        default = config_class(**said) if said or not _required_fields(config_class) else None
        manner = _Manner(_moved_tokens(config_class, default), harder)
        config = config_class(**_tiny_fields(config_class, default, manner, said))
        _settle_text_tokens(config)
        settle_rope_sections(config, find_field(config, "spatial_merge_size") is not None)
    except Exception as error:
        doing = f"{config_class.__name__} cannot be built"
        raise unavailable(_without_end(error, config_class), UnavailableCause.INVALID_CONFIG, doing) from error
    return config


def _require_config_class(config_class: Any) -> None:
    """Refuse what is no configuration of transformers: models read what only those have."""
    if inspect.isclass(config_class) and issubclass(config_class, _plain_class()):
        return
    name = getattr(config_class, "__name__", repr(config_class))
    message = f"the config_class {name} does not derive from transformers' PretrainedConfig, as a model's has to"
    raise Unavailable(UnavailableCause.INVALID_CONFIG, message)


def _without_end(error: Exception, config_class: Any) -> Exception:
    """``error``, or what it means where a configuration made another of its class, and that the next, without end."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if not isinstance(error, RecursionError):
        return error
    return CyclicConfig(
        f"making a {config_class.__name__} makes another one, without end: a sub-configuration's default"
    )


def walk(config: Any, *within: Any) -> Iterator[Any]:
    """``config`` and every configuration nested in it, outermost first. Raises ``CyclicConfig`` where one lies
    ``within`` itself."""
    yield config
    for name, value in list(vars(config).items()) if hasattr(config, "__dict__") else ():
        if _is_config(value):
            if any(value is outer for outer in (*within, config)):
                raise CyclicConfig(f"{name} of {type(config).__name__} is a configuration that it lies in itself")
            yield from walk(value, *within, config)


def read(config: Any, name: str, otherwise: Any = None) -> Any:
    """The value of a field, ``otherwise`` where there is none or where it differs from layer to layer."""
    try:
        return getattr(config, name, otherwise)
    except RuntimeError:  # what transformers raises for a field with a value a layer
        return otherwise


def find_field(config: Any, *names: str) -> Any:
    """The first of ``names`` that ``config``, or else a configuration nested in it, has a value for."""
    for part in walk(config):
        for name in names:
            value = read(part, name)
            if value is not None:
                return value
    return None


def switch_off_cache(config: Any) -> None:
    """Set ``use_cache`` to False wherever ``config`` has it: the forward task has no cache."""
    if config is None:
        return
    for part in walk(config):
        if getattr(part, "use_cache", None):
            part.use_cache = False


def switch_on_cache(config: Any) -> None:
    """Set ``use_cache`` to True wherever ``config`` has it, and have a class that encodes by default (BERT) decode: the
    generate task needs both, before the model is built."""
    for part in walk(config):
        if getattr(part, "use_cache", None) is not None:
            part.use_cache = True
    if getattr(config, "is_decoder", None) is False and not getattr(config, "is_encoder_decoder", False):
        config.is_decoder = True


def special_token_ids(config: Any) -> set[int]:
    """Every token id with a meaning of its own (padding, end, an image's placeholder, ...)."""
    return {number for part in walk(config) for _, value in _special_tokens(part) for number in _numbers(value)}


@functools.cache
def _plain_class() -> Any:
    from transformers import PretrainedConfig

    return PretrainedConfig


def _is_config(value: Any) -> bool:
    return isinstance(value, _plain_class())


def _own_parameters(config_class: Any) -> dict[str, inspect.Parameter]:
    """Parameters of the ``__init__`` that the class and its bases below transformers' own wrote: one that takes
    keywords hands them on to its base."""
    found: dict[str, inspect.Parameter] = {}
    for owner in config_class.__mro__:
        if owner is _plain_class():
            break
        if "__init__" not in vars(owner):
            continue
        kinds = {}
        for parameter in list(inspect.signature(owner.__init__).parameters.values())[1:]:
            kinds[parameter.name] = parameter.kind
            if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
                found.setdefault(parameter.name, parameter)
        if inspect.Parameter.VAR_KEYWORD not in kinds.values():
            break
    return found


def _required_fields(config_class: Any) -> list[str]:
    parameters = _own_parameters(config_class).values()
    return [p.name for p in parameters if p.default is inspect.Parameter.empty]


def _declared_defaults(config_class: Any) -> dict[str, Any]:
    """Field names with the defaults written in the class: those the constructor computes are not among them."""
    from transformers import PretrainedConfig

    declared = {
        name: None if parameter.default is inspect.Parameter.empty else parameter.default
        for name, parameter in _own_parameters(config_class).items()
    }
    if dataclasses.is_dataclass(config_class):
        for item in dataclasses.fields(config_class):
            if item.default is not dataclasses.MISSING:
                declared.setdefault(item.name, item.default)
            elif item.default_factory is not dataclasses.MISSING:
                declared[item.name] = item.default_factory()
    common = set(inspect.signature(PretrainedConfig.__init__).parameters)
    if dataclasses.is_dataclass(PretrainedConfig):
        common |= {item.name for item in dataclasses.fields(PretrainedConfig)}
    return {name: default for name, default in declared.items() if name not in common}


def _tiny_fields(config_class: Any, default: Any, manner: _Manner, given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that make a tiny ``config_class``; ``given`` fields have other values than the class declares."""
    declared = _declared_defaults(config_class)
    if not declared and default is not None:  # the constructor takes whatever it is given by name
        declared = {name: value for name, value in vars(default).items() if name not in vars(_plain())}
    declared |= given
    required = _required_fields(config_class)
    fields: dict[str, Any] = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
    for name, value in declared.items():
        nested: Any = read(default, name)
        if nested is None and value is None:
            nested = _left_open(config_class, name)
        if _is_config(nested):
            said = value if isinstance(value, Mapping) else _said_by_default(nested)
            fields[name] = _tiny_nested(nested, manner, said)
        elif _SPECIAL_TOKEN.fullmatch(name):
            current = value if default is None else read(default, name, value)
            if isinstance(current, (list, tuple)):
                fields[name] = type(current)(manner.moved.get(item, item) for item in current)
            elif isinstance(current, int) and current in manner.moved:
                fields[name] = manner.moved[current]
        elif name == "fullatt_block_indexes":
            fields[name] = [1]  # of two layers, the second looks past its windows
        elif name in required and name not in given:
            fields[name] = kind_value(name, declared, 1 << 30)
        elif (tiny := _tiny_field(name, value, nested, declared, manner)) is not None:
            fields[name] = tiny
        elif name in given:
            fields[name] = tiny_members(value)
    _shorten_convolutions(declared, fields)
    _shrink_rope_sections(default, declared, fields)
    _keep_every_kind_of_layer(config_class, default, declared, given, fields)
    return fields


def _tiny_field(name: str, value: Any, derived: Any, declared: dict[str, Any], manner: _Manner) -> Any:
    """The tiny value of one field, or None. ``derived``: what the class made of its declared ``value``."""
    tiny = tiny_value(name, value, declared)
    if tiny is None:
        tiny = derived_value(name, derived)
    if tiny is None and value is None and derived is None:
        tiny = open_value(name, declared)
    if tiny is None and manner.harder:
        tiny = smaller(name, derived if value is None else value, manner.harder)
    return tiny


def _left_open(config_class: Any, name: str) -> Any:
    """The default of a sub-configuration that a class can have and leaves open: its model would not see or hear."""
    nested = getattr(config_class, "sub_configs", {}).get(name) if name in _TOWERS else None
    if not (inspect.isclass(nested) and issubclass(nested, _plain_class())) or _required_fields(nested):
        return None
    return nested()


def _said_by_default(config: Any) -> dict[str, Any]:
    """What a configuration's default says of one nested in it: its fields that differ from its own class's defaults."""
    try:
        plain = type(config)()
    except Exception:  # a class may ask for arguments, or refuse to be made without them
        return {}
    declared = _declared_defaults(type(config))
    return {
        name.lstrip("_"): value
        for name in declared
        if not _is_config(value := read(config, name))
        and value is not None
        and value != read(plain, name)
        and name not in _OF_FULL_DEPTH
    }


def _tiny_nested(config: Any, manner: _Manner, said: Mapping[str, Any]) -> Any:
    """A tiny configuration of a nested one's class; a ResNet with as many feature maps in place of a backbone that
    the timm library would make."""
    if config.model_type != "timm_backbone":
        said = {name: value for name, value in said.items() if name not in _NOT_FIELDS}
        return type(config)(**_tiny_fields(type(config), config, manner, said))
    from transformers import ResNetConfig

    backbone: Any = ResNetConfig
    return backbone(**_tiny_fields(backbone, backbone(), manner, {}), out_indices=list(config.out_indices))


def _keep_every_kind_of_layer(
    config_class: Any, default: Any, declared: dict[str, Any], given: Mapping[str, Any], fields: dict[str, Any]
) -> None:
    """Choose layers so that each kind of layer of the full model is among them, and cut what is listed a layer."""
    depth_name = next((name for name in _DEPTHS if isinstance(declared.get(name), int)), None)
    field = config_class.attribute_map.get("layer_types", "layer_types")
    depths = declared.get("depths")
    if isinstance(depths, (list, tuple)) and depth_name and len(depths) == declared[depth_name]:
        fields[depth_name] = len(depths)  # they are lists a stage
        return
    kinds = read(default, "layer_types")
    kinds = list(kinds) if isinstance(kinds, (list, tuple)) else []
    lists = {
        name: value
        for name, value in given.items()
        if isinstance(value, (list, tuple)) and depth_name and len(value) == declared[depth_name] and name != field
    }
    if not kinds and not lists:
        return
    rows = list(zip(*(each for each in (kinds, *lists.values()) if each), strict=False))
    distinct = [rows.index(row) for row in dict.fromkeys(rows)][:_MAX_LAYERS]
    if len(distinct) == 1 and not lists and field not in fields and not declared.get(field):
        return
    chosen = distinct if len(distinct) > 1 else distinct * 2
    if [kinds[index] for index in chosen if kinds].count("hybrid") == 1:
        chosen = [
            *chosen,
            next(index for index in chosen if kinds[index] == "hybrid"),
        ]  # they share one block's weights
    depth = len(chosen)
    if lists or field in declared:
        for name, full in lists.items():
            tiny = fields[name] if len(fields[name]) == len(full) else full
            fields[name] = [tiny[index] for index in chosen]
        if kinds and field in declared:
            fields[field] = [kinds[index] for index in chosen]
    else:  # derived from the depth: go as deep as the last kind's first layer
        depth = min(_MAX_LAYERS, max(2, *(index + 1 for index in distinct)))
    for name in _DEPTHS:
        if name in fields:
            fields[name] = depth


def _shrink_rope_sections(default: Any, declared: dict[str, Any], fields: dict[str, Any]) -> None:
    """Where a class tells how many of a head's rotations stand for time, height and width: as many as a tiny head has,
    in the same shares."""
    rope = read(default, "rope_parameters")
    if "rope_parameters" not in declared or not isinstance(rope, dict) or not rope.get("mrope_section"):
        return
    width = fields.get("qk_rope_head_dim") or fields.get("head_dim") or 16
    share = 1 if "qk_rope_head_dim" in fields else rope.get("partial_rotary_factor") or 1
    fields["rope_parameters"] = {**rope, "mrope_section": _sections(rope["mrope_section"], int(width * share) // 2)}


def _sections(sections: Sequence[int], rotations: int) -> list[int]:
    tiny = [max(1, rotations * part // sum(sections)) for part in sections]
    alone = -1 if sections[0] == sections[1] else 0  # that of time; height and width have as many
    tiny[alone] += rotations - sum(tiny)
    return tiny


def _shorten_convolutions(declared: dict[str, Any], fields: dict[str, Any]) -> None:
    """Leave three of the layers that halve a waveform: the first, another, and the last, whose kernels differ.

    A feature vector then stands for tens of samples instead of hundreds.
    """
    stem = [name for name in ("conv_dim", "conv_stride", "conv_kernel") if name in declared]
    layers = [fields.get(name, declared[name]) for name in stem]
    if len(stem) == 3 and all(isinstance(of_layers, (list, tuple)) and len(of_layers) > 3 for of_layers in layers):
        for name, of_layers in zip(stem, layers, strict=True):
            fields[name] = type(of_layers)((*of_layers[:2], of_layers[-1]))


def _special_tokens(config: Any) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(config).items()):
        if _SPECIAL_TOKEN.fullmatch(name) and value is not None:
            yield name, value


def _numbers(value: Any) -> list[int]:
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if type(item) is int]


def _moved_tokens(config_class: Any, default: Any) -> dict[int, int]:
    """Where special tokens outside the small vocabulary go: to its end, in their order, apart from all others."""
    if default is None:
        named = _declared_defaults(config_class).items()
        special = {n for name, value in named if _SPECIAL_TOKEN.fullmatch(name) for n in _numbers(value)}
    else:
        special = special_token_ids(default)
    outside = sorted(number for number in special if number >= VOCABULARY)
    free = [number for number in range(VOCABULARY - 1, -1, -1) if number not in special]
    return dict(zip(outside, sorted(free[: len(outside)]), strict=False))


def settle_rope_sections(config: Any, wanted: bool) -> None:
    """How many of a head's rotations tell time, height and width, where that is ``wanted``: checkpoints say it, and
    defaults are for wide heads."""
    for part in walk(config) if wanted else ():
        rope = read(part, "rope_parameters")
        if isinstance(rope, dict) and "rope_type" in rope and rope["rope_type"] != "axial":
            width = read(part, "head_dim") or part.hidden_size // part.num_attention_heads
            width = int(width * (rope.get("partial_rotary_factor") or 1))
            rope.setdefault("mrope_section", [width // 2 - 2 * (width // 6), width // 6, width // 6])


def settle_windows(config: Any, source: str) -> None:
    """A window for layers that slide one along, where that is left to checkpoints; also where the model's ``source``
    makes their mask whether it has such layers or not."""
    always = re.search(r"[\"']sliding_attention[\"']: *create_sliding_window", source)
    for part in walk(config):
        kinds = read(part, "layer_types") or ()
        if kinds and (always or "sliding_attention" in kinds) and read(part, "sliding_window", 0) is None:
            part.sliding_window = 4


def settle_media_tokens(config: Any, source: str) -> None:
    """Give a token to each placeholder of pictures and sound that the model's ``source`` reads from its configuration
    and the class leaves to checkpoints."""
    read_ones = {found[0] for found in re.finditer(rf"(?<=config\.){_MEDIA_TOKEN.pattern}", source)}
    declared = {name for name in _declared_defaults(type(config)) if _MEDIA_TOKEN.fullmatch(name)}
    taken = special_token_ids(config)
    free = (number for number in range(VOCABULARY - 1, -1, -1) if number not in taken)
    for name in sorted(read_ones | declared):
        if find_field(config, name) is None:
            setattr(config, name, next(free))


@functools.cache
def _plain() -> Any:
    return _plain_class()()


def _settle_text_tokens(config: Any) -> None:
    """Give a padding token to a class that takes one (sequence classification finds a row's end by it), and a
    decoder's first token to a class that leaves it to checkpoints."""
    taken = special_token_ids(config)
    padding = next(number for number in range(VOCABULARY) if number not in taken)
    for part in walk(config):
        pad = getattr(part, "pad_token_id", 0)
        if pad is not None and pad >= VOCABULARY:
            part.pad_token_id = padding
        if not hasattr(part, "vocab_size"):
            continue
        if pad is None:
            part.pad_token_id = padding
        if getattr(part, "is_encoder_decoder", False) and getattr(part, "decoder_start_token_id", None) is None:
            part.decoder_start_token_id = getattr(part, "pad_token_id", padding)
