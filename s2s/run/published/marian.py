"""Marian's translators, as transformers publishes them (Helsinki-NLP/opus-mt-…): post-norm Transformers.

Three things are another way there. Positions are sines first and cosines behind, where ours alternate: the numbers of
every vector are brought into our order, in all matrices alike. The decoder starts with the padding piece, which here
is `<s>`; our padding is a piece more, which a bias keeps from being written. And each side has a sentencepiece model of
its own, with one table of pieces for both.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from s2s.data.published import packed
from s2s.data.tokenizers import PAD, Tokenizer
from s2s.errors import UserError
from s2s.run.published.description import CONFIG, check_values, read_json, write_recipe
from s2s.run.published.weights import Weights

# e to this is no share of anything, and smoothing spreads little of it
_NEVER = -100.0
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}


def convert(folder: Path, config: dict[str, Any], weights: Path, place: Path) -> None:
    """Writes recipe, tokenizers and weights of a checkpoint.

    Raises:
        UserError: a file is missing, or the model has what ours has not.
    """
    _check(config, folder)
    order = _pieces(folder, config)
    tokenizers = _tokenizers(folder, order)
    settings: dict[str, Any] = {
        "kind": "transformer",
        "width": config["d_model"],
        "heads": config["encoder_attention_heads"],
        "feedforward": config["encoder_ffn_dim"],
        "encoder_layers": config["encoder_layers"],
        "decoder_layers": config["decoder_layers"],
        "norm": "post",
        "activation": _ACTIVATIONS[config["activation_function"]],
        "dropout": float(config.get("dropout", 0.1)),
        "tie": "all",
        "output_bias": True,
    }
    given = {
        "name": "marian",
        "description": "Published weights of Marian, under our names.",
        "task": "translation",
        "model": settings,
        "tokenizer": {"kind": "published", "normalization": "identity", "shared": False},
        "decoding": {"beam": config.get("num_beams") or 5},
    }
    write_recipe(given, place)
    (place / "tokenizer").mkdir()
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        tokenizer.save(place / "tokenizer", side)
    _weights(config, Weights(weights), order).save(place / "model.safetensors")


def _check(config: dict[str, Any], folder: Path) -> None:
    known = {
        "activation_function": tuple(_ACTIVATIONS),
        "scale_embedding": (True,),
        "share_encoder_decoder_embeddings": (True, None),
        "normalize_before": (False, None),
        "normalize_embedding": (False, None),
        "encoder_ffn_dim": (config["decoder_ffn_dim"],),
        "encoder_attention_heads": (config["decoder_attention_heads"],),
        "decoder_start_token_id": (config["pad_token_id"],),
    }
    check_values(config, known, folder / CONFIG)


def _pieces(folder: Path, config: dict[str, Any]) -> list[tuple[str, int]]:
    """The pieces after our special ones, each with its number there."""
    vocabulary = read_json(folder / "vocab.json")
    special = {config["pad_token_id"], config["eos_token_id"], vocabulary["<unk>"]}
    found = sorted(vocabulary.items(), key=lambda each: each[1])
    return [(piece, number) for piece, number in found if number not in special]


def _tokenizers(folder: Path, order: list[tuple[str, int]]) -> list[Tokenizer]:
    try:
        models = [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
    except OSError as error:
        raise UserError("there is no such file", str(error.filename), "fetch the whole model") from None
    pieces = [piece for piece, _ in order]
    return [Tokenizer(packed(pieces, model), "published", "identity", False) for model in models]


def _weights(config: dict[str, Any], theirs: Weights, order: list[tuple[str, int]]) -> Weights:
    """The tensors under our names, with vectors in our order."""
    width, ours = config["d_model"], Weights()
    # number 2i here is sine i, which stands at i there; number 2i + 1 is cosine i, which stands at width / 2 + i
    half = (width + 1) // 2
    places = torch.tensor([i // 2 if i % 2 == 0 else half + i // 2 for i in range(width)])
    rows = _rows(config, order)
    table = theirs.take("model.shared.weight")[rows][:, places]
    table[PAD] = 0
    ours.tensors["encoder.embedding.tokens.weight"] = table
    bias = theirs.take("final_logits_bias", (1, len(order) + 3)).flatten()[rows]
    bias[PAD] = _NEVER
    ours.tensors["projection.bias"] = bias
    for side in ("encoder", "decoder"):
        for layer in range(config[f"{side}_layers"]):
            _layer(theirs, f"model.{side}.layers.{layer}.", ours, f"{side}.layers.{layer}.", places)
    return ours


def _rows(config: dict[str, Any], order: list[tuple[str, int]]) -> Tensor:
    start = config["pad_token_id"]
    unknown = next(iter(set(range(len(order) + 3)) - {start, config["eos_token_id"], *(n for _, n in order)}))
    first = [start, start, config["eos_token_id"], unknown]
    return torch.tensor([*first, *(number for _, number in order)])


def _layer(theirs: Weights, there: str, ours: Weights, here: str, places: Tensor) -> None:
    encoder = here.startswith("encoder.")
    attentions = {"self_attn": ("attention", "attention") if encoder else ("self_attention", "self")}
    if not encoder:
        attentions["encoder_attn"] = ("cross_attention", "cross")
    for name, (attention, block) in attentions.items():
        for part, mine in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value")):
            ours.take_over(theirs, f"{there}{name}.{part}", f"{here}{attention}.{mine}", columns=places)
        ours.take_over(theirs, f"{there}{name}.out_proj", f"{here}{attention}.output", rows=places)
        ours.take_over(theirs, f"{there}{name}_layer_norm", f"{here}{block}_block.norm", rows=places)
    ours.take_over(theirs, f"{there}fc1", f"{here}feedforward.expand", columns=places)
    ours.take_over(theirs, f"{there}fc2", f"{here}feedforward.contract", rows=places)
    ours.take_over(theirs, f"{there}final_layer_norm", f"{here}feedforward_block.norm", rows=places)
