"""Conversion of Marian translation models (Helsinki-NLP/opus-mt-…).

Reads the format of transformers.

These are post-norm Transformers with three differences. Their position embeddings have all sines first, then all
cosines, where ours alternate: the dimensions of all matrices are permuted to our order. Their decoder starts with the
padding token, which becomes `<s>`; our padding token is added, with a bias that prevents its generation. And each side
has its own sentencepiece model, but both share one embedding table.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from s2s.data.published import pack_sentencepiece
from s2s.data.tokenizers import PAD, Tokenizer
from s2s.errors import UserError
from s2s.files import LARGE_BYTES, read_file
from s2s.json_files import read_json
from s2s.run.published.description import AGAIN, CONFIG, check_values, keys_of, write_recipe
from s2s.run.published.weights import Weights

# exp(-100) is negligible, and label smoothing assigns little probability to the token.
_NEVER = -100.0
_ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu"}


def convert(folder: Path, config: dict[str, Any], weights: Path, place: Path) -> None:
    """Write recipe, tokenizers and weights of a checkpoint.

    Args:
        folder: Folder with the published files.
        config: Contents of `config.json`.

    Raises:
        UserError: A file is missing, or the model has an unsupported part.
    """
    sizes = keys_of(config, Config, folder / CONFIG)
    _check(config, sizes, folder)
    order = _pieces(folder, sizes)
    tokenizers = _tokenizers(folder, order)
    settings: dict[str, Any] = {
        "kind": "transformer",
        "width": sizes.d_model,
        "heads": sizes.encoder_attention_heads,
        "feedforward": sizes.encoder_ffn_dim,
        "encoder_layers": sizes.encoder_layers,
        "decoder_layers": sizes.decoder_layers,
        "norm": "post",
        "activation": _ACTIVATIONS[sizes.activation_function],
        "dropout": sizes.dropout,
        "tie": "all",
        "output_bias": True,
    }
    given = {
        "name": "marian",
        "description": "Published weights of Marian, under our names.",
        "task": "translation",
        "model": settings,
        "tokenizer": {"kind": "published", "normalization": "identity", "shared": False},
        "decoding": {"beam": sizes.num_beams or 5},
    }
    write_recipe(given, place, folder / CONFIG)
    (place / "tokenizer").mkdir()
    for side, tokenizer in zip(("source", "target"), tokenizers, strict=True):
        tokenizer.save(place / "tokenizer", side)
    _weights(sizes, Weights(weights), order).save(place / "model.safetensors")


class Config(BaseModel):
    """Fields of `config.json` that are read."""

    d_model: int
    encoder_layers: int
    decoder_layers: int
    encoder_attention_heads: int
    decoder_attention_heads: int
    encoder_ffn_dim: int
    decoder_ffn_dim: int
    activation_function: str
    dropout: float = 0.1
    num_beams: int | None = None
    pad_token_id: int
    eos_token_id: int


def _check(config: dict[str, Any], sizes: Config, folder: Path) -> None:
    known = {
        "activation_function": tuple(_ACTIVATIONS),
        "scale_embedding": (True,),
        "share_encoder_decoder_embeddings": (True, None),
        "normalize_before": (False, None),
        "normalize_embedding": (False, None),
        "encoder_ffn_dim": (sizes.decoder_ffn_dim,),
        "encoder_attention_heads": (sizes.decoder_attention_heads,),
        "decoder_start_token_id": (sizes.pad_token_id,),
    }
    check_values(config, known, folder / CONFIG)


def _pieces(folder: Path, sizes: Config) -> list[tuple[str, int]]:
    """Return the tokens after the special ones, each with its original id."""
    path = folder / "vocab.json"
    vocabulary = read_json(path, dict[str, int], AGAIN, LARGE_BYTES)
    found = sorted(vocabulary.items(), key=lambda each: each[1])
    if [number for _, number in found] != list(range(len(found))):
        raise UserError("the ids are not 0, 1, 2 …, each once", str(path), AGAIN)
    special = {sizes.pad_token_id, sizes.eos_token_id, vocabulary.get("<unk>", -1)}
    if len(special) < 3 or not special <= set(range(len(found))):
        what = f"lacks a token <unk>, or those of pad_token_id and eos_token_id of {CONFIG}"
        raise UserError(what, str(path), AGAIN)
    return [(piece, number) for piece, number in found if number not in special]


def _tokenizers(folder: Path, order: list[tuple[str, int]]) -> list[Tokenizer]:
    tokens, found = [piece for piece, _ in order], []
    for path in (folder / "source.spm", folder / "target.spm"):
        try:
            model = read_file(path, AGAIN, LARGE_BYTES)
            found.append(Tokenizer(pack_sentencepiece(tokens, model), "published", "identity", False))
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            what = "there is no such file" if missing else f"cannot be read: {error.strerror}"
            raise UserError(what, str(path), "download the whole model") from None
        except RuntimeError:
            raise UserError("is not a sentencepiece model", str(path), AGAIN) from None
    return found


def _weights(sizes: Config, theirs: Weights, order: list[tuple[str, int]]) -> Weights:
    """Return the tensors under our names, with dimensions in our order."""
    width, ours = sizes.d_model, Weights()
    # Our dimension 2i is sine i, which is dimension i there; our 2i + 1 is cosine i, which is width / 2 + i there.
    half = (width + 1) // 2
    places = torch.tensor([i // 2 if i % 2 == 0 else half + i // 2 for i in range(width)])
    rows = _rows(sizes, order)
    shared = theirs.table("model.shared.weight")
    if shared.shape != (len(order) + 3, width):
        what = f"model.shared.weight is not {len(order) + 3:,} × {width:,}, tokens and d_model"
        raise UserError(what, str(theirs.path), AGAIN)
    table = shared[rows][:, places]
    table[PAD] = 0
    ours.tensors["encoder.embedding.tokens.weight"] = table
    bias = theirs.take("final_logits_bias", (1, len(order) + 3)).flatten()[rows]
    bias[PAD] = _NEVER
    ours.tensors["projection.bias"] = bias
    for side in ("encoder", "decoder"):
        for layer in range(sizes.encoder_layers if side == "encoder" else sizes.decoder_layers):
            _layer(theirs, f"model.{side}.layers.{layer}.", ours, f"{side}.layers.{layer}.", places)
    return ours


def _rows(sizes: Config, order: list[tuple[str, int]]) -> Tensor:
    start = sizes.pad_token_id
    unknown = next(iter(set(range(len(order) + 3)) - {start, sizes.eos_token_id, *(n for _, n in order)}))
    first = [start, start, sizes.eos_token_id, unknown]
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
