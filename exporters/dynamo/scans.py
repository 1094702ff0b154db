"""Stage ``model_patches``: recurrences over the sequence, which models write as Python loops, as torch's ``scan``.

A trace unrolls a Python loop: the graph holds every step and takes no other length. ``scan`` keeps one step as a
subgraph and runs it as often as the sequence is long, whatever its length: torch.export serialises it, ONNX has a
``Scan`` node, ExecuTorch emits a loop. Each family of models has one step here, in the arithmetic of the model's own
token-by-token form; the functions keep the names and meaning of the arguments they replace.
"""
# ruff: noqa: N803  the models' own names: A, B, C and D are the matrices of the state space

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from exporters.registry import register_patch

#: States, then one time step of each input, then the constants; to the next states and the step's output.
Step = Callable[..., tuple[Sequence[Tensor], Tensor]]


def recurrence(
    step: Step, states: Sequence[Tensor], inputs: Sequence[Tensor], constants: Sequence[Tensor] = ()
) -> tuple[list[Tensor], Tensor]:
    """Run ``step`` along the sequence axis of ``inputs``.

    Args:
        step: ``step(*states, *inputs at one time, *constants) -> (next states, output)``, free of side effects. The
            next states have the states' shapes and dtypes; tensors from outside come as ``constants``.
        states: the states before the first step.
        inputs: tensors ``(batch, time, ...)`` of one length, at least 1.
        constants: tensors that every step sees whole.

    Returns:
        The states after the last step, and the outputs as ``(batch, time, ...)``.
    """
    if inputs[0].shape[1] == 1 and isinstance(inputs[0].shape[1], int):  # one token: a step, not a loop
        last, output = step(*states, *(value[:, 0] for value in inputs), *constants)
        return list(last), output.unsqueeze(1)

    def flat(*arguments: Tensor) -> list[Tensor]:
        following, output = step(*arguments)
        return [*following, output]

    # The operator itself: its wrapper in torch._higher_order_ops runs the compiler for every call, seconds a layer.
    found = torch.ops.higher_order.scan(
        flat,
        [state.contiguous() for state in states],
        [value.transpose(0, 1) for value in inputs],
        tuple(constants),
    )
    *last, outputs = found
    return last, outputs.transpose(0, 1)


def _modules(function: str, *models: str) -> tuple[str, ...]:
    return tuple(f"transformers.models.{model}.modeling_{model}.{function}" for model in models)


def _time_step(dt: Tensor, bias: Tensor | None, softplus: bool) -> Tensor:
    if bias is not None:
        dt = dt + bias.to(dt.dtype)
    return F.softplus(dt) if softplus else dt


def _selective_step(
    state: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, A: Tensor
) -> tuple[Sequence[Tensor], Tensor]:
    """One token of Mamba: ``state`` (batch, channels, state), ``x`` and ``dt`` (batch, channels), ``B`` and ``C``
    (batch, state), ``A`` (channels, state)."""
    dt = dt.unsqueeze(-1)
    state = torch.exp(A * dt) * state + dt * B.unsqueeze(1).float() * x.unsqueeze(-1).float()
    return (state,), torch.matmul(state.to(x.dtype), C.unsqueeze(-1)).squeeze(-1)


@register_patch(
    "dynamo",
    *_modules("mamba_selective_scan", "mamba", "falcon_mamba", "jamba", "zamba"),
    model_change="run the recurrence as torch's scan operator while exporting",
)
def _patch_selective_scan(original: Callable[..., Any]) -> Callable[..., Any]:
    """Mamba's scan is a Python loop over the tokens, so that the graph takes the traced length only."""

    def selective_scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        D: Tensor | None = None,
        z: Tensor | None = None,
        delta_bias: Tensor | None = None,
        delta_softplus: bool = False,
        return_last_state: bool = False,
        **kwargs: Any,
    ) -> Any:
        dt = _time_step(dt.transpose(1, 2), delta_bias, delta_softplus)
        x = hidden_states.transpose(1, 2)
        state = A.new_zeros(x.shape[0], *A.shape, dtype=torch.promote_types(A.dtype, x.dtype))
        (last,), outputs = recurrence(_selective_step, [state], [x, dt, B.transpose(1, 2), C.transpose(1, 2)], [A])
        outputs = outputs.transpose(1, 2)
        if D is not None:
            outputs = outputs + hidden_states * D[None, :, None]
        if z is not None:
            outputs = outputs * F.silu(z)
        return (outputs, last) if return_last_state else outputs

    return selective_scan


def _per_head(groups: Tensor, heads: int) -> Tensor:
    """``(batch, groups, state)`` to ``(batch, heads, state)``: each group serves as many consecutive heads."""
    batch, count, size = groups.shape
    return groups.unsqueeze(2).expand(batch, count, heads // count, size).reshape(batch, heads, size)


def _state_space_step(
    state: Tensor, x: Tensor, dt: Tensor, B: Tensor, C: Tensor, A: Tensor
) -> tuple[Sequence[Tensor], Tensor]:
    """One token of Mamba 2: ``state`` (batch, heads, channels, state), ``x`` (batch, heads, channels), ``dt`` (batch,
    heads), ``B`` and ``C`` (batch, groups, state), ``A`` (heads)."""
    heads = x.shape[1]
    decay = torch.exp(A * dt).unsqueeze(-1).unsqueeze(-1)
    added = (x * dt.unsqueeze(-1)).unsqueeze(-1) * _per_head(B, heads).unsqueeze(2)
    state = decay * state + added
    return (state,), (state * _per_head(C, heads).unsqueeze(2)).sum(-1)


@register_patch(
    "dynamo",
    *_modules("mamba2_chunk_scan", "mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2"),
    model_change="run the recurrence as torch's scan operator while exporting",
)
def _patch_chunk_scan(original: Callable[..., Any]) -> Callable[..., Any]:
    """Mamba 2 pads the sequence to whole chunks, and asks whether it had to: the graph keeps the traced answer."""

    def chunk_scan(
        hidden_states: Tensor,
        dt: Tensor,
        A: Tensor,
        B: Tensor,
        C: Tensor,
        chunk_size: int,
        D: Tensor | None = None,
        dt_bias: Tensor | None = None,
        initial_states: Tensor | None = None,
        dt_softplus: bool = False,
        dt_limit: tuple[float, float] = (0.0, float("inf")),
        return_final_states: bool = False,
        **kwargs: Any,
    ) -> Any:
        dt = _time_step(dt, dt_bias, dt_softplus).clamp(*dt_limit).float()
        x = hidden_states.float()
        batch, _, heads, channels = x.shape
        state = x.new_zeros(batch, heads, channels, B.shape[-1]) if initial_states is None else initial_states.float()
        (last,), outputs = recurrence(_state_space_step, [state], [x, dt, B.float(), C.float()], [A.float()])
        if D is not None:
            outputs = outputs + D[..., None] * x
        outputs = outputs.contiguous()
        return (outputs, last) if return_final_states else outputs

    return chunk_scan


def _delta_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Sequence[Tensor], Tensor]:
    """One token of the gated delta rule: ``state`` (batch, heads, keys, values), ``query`` and ``key`` (batch, heads,
    keys), ``value`` (batch, heads, values), ``decay`` (batch, heads, keys or 1), ``beta`` (batch, heads)."""
    state = state * decay.exp().unsqueeze(-1)
    remembered = (state * key.unsqueeze(-1)).sum(-2)
    correction = (value - remembered) * beta.unsqueeze(-1)
    state = state + key.unsqueeze(-1) * correction.unsqueeze(-2)
    return (state,), (state * query.unsqueeze(-1)).sum(-2)


@register_patch(
    "dynamo",
    *(
        path
        for function in ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule")
        for path in _modules(function, "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "olmo_hybrid", "lara_mini")
    ),
    *(
        path
        for function in ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention")
        for path in _modules(function, "kimi_linear", "bailing_hybrid", "glm5_next")
    ),
    model_change="run the recurrence as torch's scan operator while exporting",
)
def _patch_delta_rule(original: Callable[..., Any]) -> Callable[..., Any]:
    """The gated delta rule loops in Python over the chunks and within them, so that the length is baked in."""

    def delta_rule(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        g: Tensor,
        beta: Tensor,
        *,
        initial_state: Tensor | None = None,
        output_final_state: bool = False,
        use_qk_l2norm_in_kernel: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        dtype = query.dtype
        shared = value.shape[2] // key.shape[2]  # heads of values that share a head of queries and keys
        if shared > 1:
            query, key = (x.repeat_interleave(shared, dim=2) for x in (query, key))
        query, key, value, decay, beta = (x.float() for x in (query, key, value, g, beta))
        if use_qk_l2norm_in_kernel:
            query, key = (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6) for x in (query, key))
        query = query * query.shape[-1] ** -0.5
        if decay.dim() == beta.dim():  # one decay a head; Kimi has one a key channel
            decay = decay.unsqueeze(-1)
        batch, _, heads, keys = key.shape
        state = key.new_zeros(batch, heads, keys, value.shape[-1]) if initial_state is None else initial_state.float()
        (last,), outputs = recurrence(_delta_step, [state], [query, key, value, decay, beta])
        return outputs.contiguous().to(dtype), last if output_final_state else None

    return delta_rule


def _weighted_step(
    numerator: Tensor,
    denominator: Tensor,
    peak: Tensor,
    key: Tensor,
    value: Tensor,
    time_decay: Tensor,
    time_first: Tensor,
) -> tuple[Sequence[Tensor], Tensor]:
    """One token of RWKV, every tensor (batch, channels) or (channels). Sums are kept relative to ``exp(peak)``."""
    now = key + time_first
    top = torch.maximum(peak, now)
    old, new = torch.exp(peak - top), torch.exp(now - top)
    output = (old * numerator + new * value) / (old * denominator + new)
    faded = peak + time_decay
    peak = torch.maximum(faded, key)
    old, new = torch.exp(faded - peak), torch.exp(key - peak)
    return (old * numerator + new * value, old * denominator + new, peak), output


@register_patch(
    "dynamo",
    *_modules("rwkv_linear_attention", "rwkv"),
    model_change="run the recurrence as torch's scan operator while exporting",
)
def _patch_rwkv_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """RWKV's attention is a Python loop over the tokens, so that the graph takes the traced length only."""

    def linear_attention(
        time_decay: Tensor,
        time_first: Tensor,
        key: Tensor,
        value: Tensor,
        state: Sequence[Tensor] | None = None,
        return_state: bool = False,
    ) -> tuple[Tensor, Sequence[Tensor] | None]:
        kept = state is not None or return_state
        if state is None:
            nothing = torch.zeros_like(key[:, 0], dtype=torch.float32)
            state = (nothing, nothing.clone(), nothing - 1e38)
        inputs = [key.float(), value.float()]
        constants = [-torch.exp(time_decay.float()), time_first.float()]
        last, outputs = recurrence(_weighted_step, [part.float() for part in state], inputs, constants)
        return outputs.to(key.dtype), last if kept else None

    return linear_attention


@register_patch(
    "dynamo",
    "transformers.models.xlstm.modeling_xlstm.xLSTMBackend.forward",
    model_change="run the recurrence as torch's scan operator while exporting",
)
def _patch_mlstm(original: Callable[..., Any]) -> Callable[..., Any]:
    """xLSTM cuts the sequence into chunks and loops over them and over the rest, so that the length is baked in.

    Its own step for one token is scanned instead.
    """

    def forward(
        self: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        igate: Tensor,
        fgate: Tensor,
        c_initial: Tensor | None = None,
        n_initial: Tensor | None = None,
        m_initial: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        states: list[Any] = [c_initial, n_initial, m_initial]
        if "inference" not in (kwargs.get("mode") or self.config.mode):
            return original(self, query, key, value, igate, fgate, *states, **kwargs)
        if c_initial is None:
            shape = (key.shape[0], key.shape[1])
            sizes = ((key.shape[3], value.shape[3]), (key.shape[3],), (1,))
            states = [key.new_zeros(*shape, *size, dtype=torch.float32) for size in sizes]
        settings = {"eps": self.config.eps, "dtype_state": getattr(torch, self.config.inference_state_dtype)}

        def step(c: Tensor, n: Tensor, m: Tensor, q: Tensor, k: Tensor, v: Tensor, i: Tensor, f: Tensor) -> Any:
            output, following = self.step_kernel_fn(q, k, v, igate=i, fgate=f, cstate=c, nstate=n, mstate=m, **settings)
            return following, output

        inputs = [query, key, value, igate.unsqueeze(-1), fgate.unsqueeze(-1)]
        last, outputs = recurrence(step, states, [each.transpose(1, 2) for each in inputs])
        return outputs.transpose(1, 2), tuple(last)

    return forward


def _lightning_step(
    state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor
) -> tuple[Sequence[Tensor], Tensor]:
    """One token of lightning attention: ``state`` (batch, heads, size, size), ``query``, ``key`` and ``value`` (batch,
    heads, size), ``decay`` (heads, 1, 1)."""
    state = decay * state + key.unsqueeze(-1) * value.unsqueeze(-2)
    return (state,), (state * query.unsqueeze(-1)).sum(-2)


@register_patch(
    "dynamo",
    "transformers.models.minimax.modeling_minimax.MiniMaxLightningAttention.forward",
    model_change="run the recurrence as torch's scan operator while exporting, in a function of its own",
)
def _patch_lightning_attention(original: Callable[..., Any]) -> Callable[..., Any]:
    """MiniMax's lightning attention loops in Python over blocks of the sequence, so that the length is baked in."""

    def forward(
        self: Any,
        hidden_states: Tensor,
        position_embeddings: Any,
        attention_mask: Tensor | None,
        cache: Any = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        joint = self.act_fn(self.qkv_proj(hidden_states))
        if attention_mask is not None:
            joint = (joint * attention_mask.unsqueeze(-1)).to(joint.dtype)
        batch, length, _ = hidden_states.shape
        heads, size = self.num_attention_heads, self.head_dim
        inputs = joint.reshape(batch, length, heads, 3 * size).split(size, dim=3)
        state = None if cache is None else cache.get_linear_cache(self.layer_idx)
        if state is None:
            state = joint.new_zeros(batch, heads, size, size)
        (last,), outputs = recurrence(_lightning_step, [state], inputs, [torch.exp(-self.slope_rate)])
        outputs = self.norm(outputs.reshape(batch, length, heads * size))
        outputs = self.out_proj(torch.sigmoid(self.output_gate(hidden_states)) * outputs)
        if cache is not None:
            cache.set_linear_cache(self.layer_idx, last)
        return outputs, last

    return forward
