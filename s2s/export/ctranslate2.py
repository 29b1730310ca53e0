"""Export of a translation Transformer to CTranslate2.

The weights are mapped to the names of `ctranslate2.specs`: the query, key and value matrices of a layer are
concatenated, and the norm before or after a block is part of the block.
"""

from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor, nn

from s2s.data.tokenizers import SPECIAL_TOKENS, Tokenizer
from s2s.export.exportable import POSITIONS, check_installed
from s2s.export.sentencepiece import vocabulary
from s2s.models.base import Seq2Seq
from s2s.models.transformer import Settings
from s2s.models.transformer_layers import DecoderLayer, EncoderLayer, TransformerDecoder, TransformerEncoder
from s2s.nn.attention import Attention
from s2s.nn.embeddings import Embedding, sinusoids
from s2s.nn.layers import FeedForward, Residual
from s2s.nn.positions import RelativeBuckets


def save(
    model: Seq2Seq, settings: Settings, tokenizers: tuple[Tokenizer, ...], folder: Path, quantization: str
) -> None:
    """Write `model.bin`, `config.json` and the vocabulary."""
    check_installed("ctranslate2")
    from ctranslate2 import specs as typed

    specs: Any = typed  # its types say that attributes set to None stay None
    encoder, decoder = cast(TransformerEncoder, model.encoder), cast(TransformerDecoder, model.decoder)
    spec = specs.TransformerSpec(*_empty(specs, settings))
    _embedding(spec.encoder.embeddings[0], spec.encoder, cast(Embedding, encoder.embedding))
    _embedding(spec.decoder.embeddings, spec.decoder, decoder.embedding)
    _linear(spec.decoder.projection, model.projection)
    for layer, into in zip(encoder.layers, spec.encoder.layer, strict=True):
        layer = cast(EncoderLayer, layer)
        _self_attention(into.self_attention, layer.attention, layer.attention_block)
        _feedforward(into.ffn, layer.feedforward, layer.feedforward_block)
    for layer, into in zip(decoder.layers, spec.decoder.layer, strict=True):
        _decoder_layer(into, cast(DecoderLayer, layer))
    for part, into in ((encoder, spec.encoder), (decoder, spec.decoder)):
        if not isinstance(part.norm, nn.Identity):
            _norm(into.layer_norm, part.norm)
        if isinstance(part.bias, RelativeBuckets):
            for layer in into.layer:
                layer.self_attention.relative_attention_bias = _numbers(part.bias.values.weight)
                layer.self_attention.relative_attention_max_distance = np.dtype("int32").type(part.bias.max_distance)
    for name, value in zip(("pad", "bos", "eos", "unk"), SPECIAL_TOKENS, strict=True):
        if name != "pad":
            setattr(spec.config, f"{name}_token", value)
    spec.config.decoder_start_token = SPECIAL_TOKENS[1]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = settings.norm_epsilon
    spec.register_source_vocabulary(vocabulary(tokenizers[0]))
    spec.register_target_vocabulary(vocabulary(tokenizers[-1]))
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _empty(specs: Any, settings: Settings) -> tuple[Any, Any]:
    """Create the specifications of encoder and decoder, without weights."""
    common = {
        "num_heads": settings.heads,
        "pre_norm": settings.norm == "pre",
        "activation": getattr(specs.Activation, _ACTIVATIONS[settings.activation]),
        "layernorm_embedding": settings.embedding_norm,
        "ffn_glu": settings.activation == "swiglu",
        "rms_norm": settings.norm_kind == "rms",
        "num_heads_kv": settings.key_value_heads,
        "head_dim": settings.head_size if settings.heads_kind == "wide" else None,
    }
    positions = dict[str, dict[str, Any]](sinusoidal={}, learned={}, none={})
    positions |= {"rope": {"rotary_dim": settings.head_size}, "relative": {"relative_attention_bias": True}}
    encoder, decoder = positions[settings.encoder_positions], positions[settings.decoder_positions]
    return (
        specs.transformer_spec.TransformerEncoderSpec(settings.encoder_layers, **common, **encoder),
        specs.transformer_spec.TransformerDecoderSpec(settings.decoder_layers, **common, **decoder),
    )


_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH", "swiglu": "SWISH"}


def _decoder_layer(into: Any, layer: DecoderLayer) -> None:
    _self_attention(into.self_attention, layer.self_attention, layer.self_block)
    across = layer.cross_attention
    _linear(into.attention.linear[0], across.query)
    _linear(into.attention.linear[1], across.key, across.value)
    _linear(into.attention.linear[2], across.output)
    _norm(into.attention.layer_norm, layer.cross_block.norm)
    _feedforward(into.ffn, layer.feedforward, layer.feedforward_block)


def _self_attention(into: Any, attention: Attention, block: Residual) -> None:
    _linear(into.linear[0], attention.query, attention.key, attention.value)
    _linear(into.linear[1], attention.output)
    _norm(into.layer_norm, block.norm)


def _feedforward(into: Any, feedforward: FeedForward, block: Residual) -> None:
    if feedforward.gate is None:
        _linear(into.linear_0, feedforward.expand)
    else:
        _linear(into.linear_0, feedforward.gate)
        _linear(into.linear_0_noact, feedforward.expand)
    _linear(into.linear_1, feedforward.contract)
    _norm(into.layer_norm, block.norm)


def _embedding(into: Any, side: Any, embedding: Embedding) -> None:
    into.weight = _numbers(cast(nn.Embedding, embedding.tokens).weight)
    side.scale_embeddings = embedding.scale != 1.0
    if embedding.positions is not None:
        places = _numbers(embedding.positions.weight)
    elif embedding.kind == "sinusoidal":
        places = sinusoids(POSITIONS, embedding.width).numpy()
    else:
        places = np.zeros((POSITIONS, embedding.width), np.float32)
    if hasattr(side, "position_encodings"):
        side.position_encodings.encodings = places
    if embedding.norm is not None:
        _norm(side.layernorm_embedding, embedding.norm)


def _linear(into: Any, *linears: nn.Linear) -> None:
    into.weight = np.concatenate([_numbers(linear.weight) for linear in linears])
    if linears[0].bias is not None:
        into.bias = np.concatenate([_numbers(linear.bias) for linear in linears])


def _norm(into: Any, norm: nn.Module) -> None:
    into.gamma = _numbers(cast(Tensor, norm.weight))
    if isinstance(norm, nn.LayerNorm):
        into.beta = _numbers(norm.bias)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()
