"""Conversion of BERT (Devlin et al. 2019) to a masked-language model.

Reads the format of transformers (google-bert/bert-base-uncased). `[CLS]` becomes `<s>`, `[SEP]` becomes `</s>`, and
`[MASK]` the mask token, which is not part of the tokenizer's vocabulary. Every text has token type 0, so the embedding
of this type is added to the position embeddings. The next-sentence head is dropped. The pooler is saved in a separate
file, for a classifier with `pooling: pooler` that loads all parts (`init.parts: all`).
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from s2s.data.published import pack_wordpiece
from s2s.data.tokenizers import Tokenizer
from s2s.errors import UserError
from s2s.files import LARGE_BYTES, read_file
from s2s.json_files import read_json
from s2s.run.published.description import AGAIN, CONFIG, POOLER, check_values, keys_of, write_recipe
from s2s.run.published.weights import Weights

# In the order of our token ids; the mask token is last.
_SPECIALS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
_MASK = "[MASK]"
_HEAD = "cls.predictions."


def convert(folder: Path, config: dict[str, Any], weights: Path, place: Path) -> None:
    """Write recipe, tokenizer and weights of a checkpoint.

    Without a prediction head, the result can only initialize other models.

    Args:
        folder: Folder with the published files.
        config: Contents of `config.json`.

    Raises:
        UserError: A file is missing, or the model has an unsupported part.
    """
    _check(config, folder / CONFIG)
    sizes = keys_of(config, Config, folder / CONFIG)
    theirs = _named(Weights(weights))
    rows = len(theirs.table("embeddings.word_embeddings.weight"))
    tokens, how = _vocabulary(folder)
    names = [*tokens, *(f"[row {n}]" for n in range(len(tokens), rows))]
    missing = [name for name in (*_SPECIALS, _MASK) if name not in names]
    if missing or len(names) > rows:
        what = f"no token {missing[0]}" if missing else f"{len(names)} tokens for {rows} embeddings"
        raise UserError(f"has {what}", str(folder), "choose another model")
    others = [name for name in names if name not in (*_SPECIALS, _MASK)]
    write_recipe(described(sizes), place, folder / CONFIG)
    (place / "tokenizer").mkdir()
    Tokenizer(pack_wordpiece(others, *how), "published", "identity", False).save(place / "tokenizer", "text")
    numbers = {name: number for number, name in enumerate(names)}
    order = torch.tensor([numbers[name] for name in (*_SPECIALS, *others, _MASK)])
    _model(theirs, sizes.num_hidden_layers, order).save(place / "model.safetensors")
    if "pooler.dense.weight" in theirs.tensors:
        pooler = Weights()
        pooler.take_over(theirs, "pooler.dense", "pooling.dense")
        pooler.save(place / POOLER)


def _check(config: dict[str, Any], path: Path) -> None:
    known = {
        "hidden_act": ("gelu",),
        "position_embedding_type": ("absolute", None),
        "is_decoder": (False, None),
        "add_cross_attention": (False, None),
        "tie_word_embeddings": (True, None),
    }
    check_values(config, known, path)


class Config(BaseModel):
    """Sizes in `config.json`."""

    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    num_hidden_layers: int
    max_position_embeddings: int
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1


def described(config: Config) -> dict[str, Any]:
    """Return the recipe of a model, given its `config.json`."""
    longest = config.max_position_embeddings
    model = {
        "kind": "transformer",
        "width": config.hidden_size,
        "heads": config.num_attention_heads,
        "feedforward": config.intermediate_size,
        "encoder_layers": config.num_hidden_layers,
        "encoder_positions": "learned",
        "max_positions": longest,
        "norm": "post",
        "norm_epsilon": config.layer_norm_eps,
        "embedding_norm": True,
        "scale_embeddings": False,
        "activation": "gelu",
        "dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
    }
    return {
        "name": "bert",
        "description": "Published weights of BERT, under our names.",
        "task": "masked-lm",
        "model": model,
        "tokenizer": {"kind": "published", "normalization": "identity"},
        "masking": {"begin": True, "output_bias": True},
        "batches": {"max_length": longest, "tokens": max(8192, longest)},
    }


def _vocabulary(folder: Path) -> tuple[list[str], tuple[bool, bool, bool]]:
    """Return the tokens by id, and how words are split."""
    if (path := folder / "tokenizer.json").exists():
        found = read_json(path, _TokenizerFile, AGAIN, LARGE_BYTES)
        model, words = found.model, found.normalizer
        kinds = {"model": model.type, "normalizer": words.type, "pre_tokenizer": found.pre_tokenizer.type}
        wanted = {"model": "WordPiece", "normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
        check_values(kinds, {name: (value,) for name, value in wanted.items()}, path)
        check_values({"clean_text": words.clean_text}, {"clean_text": (True, None)}, path)
        prefix, longest = model.continuing_subword_prefix, model.max_input_chars_per_word
        check_values({"continuing_subword_prefix": prefix}, {"continuing_subword_prefix": ("##", None)}, path)
        check_values({"max_input_chars_per_word": longest}, {"max_input_chars_per_word": (100, None)}, path)
        tokens = sorted(model.vocab, key=model.vocab.__getitem__)
        if [model.vocab[piece] for piece in tokens] != list(range(len(tokens))):
            raise UserError("model.vocab: the ids are not 0, 1, 2 …, each once", str(path), AGAIN)
        return tokens, _normalization_options(words.lowercase, words.strip_accents, words.handle_chinese_chars)
    path = folder / "vocab.txt"
    try:
        lines = read_file(path, AGAIN, LARGE_BYTES).decode("utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        what = (error.strerror if isinstance(error, OSError) else None) or "is not UTF-8"
        raise UserError(f"cannot be read: {what}", str(path), "download the whole model") from None
    path = folder / "tokenizer_config.json"
    settings = read_json(path, _TokenizerConfig, AGAIN) if path.exists() else _TokenizerConfig()
    return lines, _normalization_options(
        settings.do_lower_case, settings.strip_accents, settings.tokenize_chinese_chars
    )


def _normalization_options(
    lowercase: bool | None, strip_accents: bool | None, chinese: bool | None
) -> tuple[bool, bool, bool]:
    lower = lowercase is not False
    return lower, lower if strip_accents is None else strip_accents, chinese is not False


class _Normalizer(BaseModel):
    type: str | None = None
    clean_text: bool | None = None
    lowercase: bool | None = None
    strip_accents: bool | None = None
    handle_chinese_chars: bool | None = None


class _WordPiece(BaseModel):
    type: str | None = None
    vocab: dict[str, int]
    continuing_subword_prefix: str | None = None
    max_input_chars_per_word: int | None = None


class _PreTokenizer(BaseModel):
    type: str | None = None


class _TokenizerFile(BaseModel):
    """Fields of `tokenizer.json` that are read."""

    model: _WordPiece
    normalizer: _Normalizer = _Normalizer()
    pre_tokenizer: _PreTokenizer = _PreTokenizer()


class _TokenizerConfig(BaseModel):
    """Fields of `tokenizer_config.json` that are read."""

    do_lower_case: bool | None = None
    strip_accents: bool | None = None
    tokenize_chinese_chars: bool | None = None


def _named(weights: Weights) -> Weights:
    """Rename tensors to the names of the encoder alone, and to current names of norms."""

    def name(old: str) -> str:
        new = old.removeprefix("bert.")
        return new.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")

    weights.tensors = {name(old): tensor for old, tensor in weights.tensors.items()}
    return weights


def _model(theirs: Weights, layers: int, order: Tensor) -> Weights:
    """Return the tensors under our names, with tokens in our order."""
    ours = Weights()
    ours.tensors["encoder.embedding.tokens.weight"] = theirs.take("embeddings.word_embeddings.weight")[order]
    kinds = theirs.table("embeddings.token_type_embeddings.weight")
    positions = theirs.table("embeddings.position_embeddings.weight")
    ours.tensors["encoder.embedding.positions.weight"] = positions + kinds[0]
    ours.take_over(theirs, "embeddings.LayerNorm", "encoder.embedding.norm")
    for number in range(layers):
        there, here = f"encoder.layer.{number}.", f"encoder.layers.{number}."
        for part in ("query", "key", "value"):
            ours.take_over(theirs, f"{there}attention.self.{part}", f"{here}attention.{part}")
        ours.take_over(theirs, f"{there}attention.output.dense", f"{here}attention.output")
        ours.take_over(theirs, f"{there}attention.output.LayerNorm", f"{here}attention_block.norm")
        ours.take_over(theirs, f"{there}intermediate.dense", f"{here}feedforward.expand")
        ours.take_over(theirs, f"{there}output.dense", f"{here}feedforward.contract")
        ours.take_over(theirs, f"{there}output.LayerNorm", f"{here}feedforward_block.norm")
    if f"{_HEAD}transform.dense.weight" in theirs.tensors:
        ours.take_over(theirs, f"{_HEAD}transform.dense", "transform.0")
        ours.take_over(theirs, f"{_HEAD}transform.LayerNorm", "transform.2")
        ours.tensors["projection.bias"] = theirs.take(f"{_HEAD}bias")[order]
    return ours
