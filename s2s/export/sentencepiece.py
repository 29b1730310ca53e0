"""SentencePiece files that encode and decode like the tokenizers of s2s, for use without s2s.

s2s normalizes and escapes text itself, and adds the space before the first word. Here all this becomes part of the
SentencePiece model: its dummy prefix, its white space folding, and its normalization table.
"""

import base64
import io
import json
import sys
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import sentencepiece

from s2s.data.tokenizers import ESCAPES, SPECIAL_TOKENS, Tokenizer, normalized

# SentencePiece refuses a model of bytes alone. This piece comes after all ids, and is never found in a text.
_NEVER = "\ufdef" * 9
# Characters that are looked at together; most blocks have no character that normalization changes.
_BLOCK = 256
# SentencePiece has no rules for NUL.
_ESCAPES = {character: escaped for character, escaped in ESCAPES.items() if character != "\0"}


def sentencepiece_files(tokenizers: Sequence[Tokenizer]) -> dict[str, bytes]:
    """Return SentencePiece models whose token ids are those of s2s.

    Args:
        tokenizers: No tokenizer, one, or one for the source and one for the target.

    Returns:
        `source.spm` and `target.spm`, equal for one tokenizer. Nothing if SentencePiece cannot tokenize so: WordPiece
        (BERT), a `tokenizer.json` of the library `tokenizers`, and a SentencePiece model of the user with a
        `normalization` or `lowercase` before it.
    """
    models = [_normalizing(each) for each in tokenizers]
    if not models or any(model is None for model in models):
        return {}
    return {"source.spm": models[0].SerializeToString(), "target.spm": models[-1].SerializeToString()}


def _normalizing(tokenizer: Tokenizer) -> Any:
    """Return the tokenizer as a SentencePiece model (protocol buffer); None if it cannot be one."""
    model = _pieces(tokenizer)
    if model is None or tokenizer.kind == "published":
        return model
    spec, back = model.normalizer_spec, model.denormalizer_spec
    escapes = {} if tokenizer.kind == "bytes" else _ESCAPES
    spec.remove_extra_whitespaces = tokenizer.normalization == "nfkc"
    spec.add_dummy_prefix = spec.escape_whitespaces = bool(escapes)
    spec.precompiled_charsmap = _normalization(tokenizer.normalization, tokenizer.lowercase, bool(escapes))
    back.add_dummy_prefix = back.remove_extra_whitespaces = back.escape_whitespaces = False
    back.precompiled_charsmap = _compiled({escaped: character for character, escaped in escapes.items()})
    return model


def vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the name of each token: its piece in the SentencePiece file, else as it is shown.

    A name that is taken gets the token id appended.
    """
    model = _pieces(tokenizer)
    if model is not None:
        return [piece.piece for piece in model.pieces[: tokenizer.size]]
    names: dict[str, None] = {}
    for number, name in enumerate(tokenizer.tokens(range(tokenizer.size))):
        names[f"{name}#{number}" if name in names else name] = None
    return list(names)


def _pieces(tokenizer: Tokenizer) -> Any:
    """Return a SentencePiece model with the pieces of the tokenizer, in its order; None if it has other pieces."""
    from sentencepiece import sentencepiece_model_pb2

    proto: Any = sentencepiece_model_pb2  # its classes are made at run time
    kinds = proto.ModelProto.SentencePiece
    if tokenizer.kind not in ("bytes", "published"):
        return proto.ModelProto.FromString(tokenizer.model)
    model = proto.ModelProto()
    if tokenizer.kind == "bytes":
        own = [kinds(piece=f"<0x{byte:02X}>", type=kinds.BYTE) for byte in range(256)]
        own.append(kinds(piece=_NEVER, type=kinds.NORMAL))
        model.trainer_spec.byte_fallback = True
        model.normalizer_spec.name = "identity"
    else:
        found = json.loads(tokenizer.model)
        names = found["pieces"]
        if (
            "model" not in found
            or {*names} & {*SPECIAL_TOKENS}
            or tokenizer.normalization != "identity"
            or tokenizer.lowercase
        ):
            return None
        model = proto.ModelProto.FromString(base64.b64decode(found["model"]))
        given = {piece.piece: piece for piece in model.pieces if piece.type not in (kinds.CONTROL, kinds.UNKNOWN)}
        # Pieces that only the vocabulary has are never found in a text; those that only the model has are unknown to
        # the network, and get ids after all others.
        own = [given.pop(name, kinds(piece=name, type=kinds.UNUSED)) for name in names] + [*given.values()]
    special = [kinds(piece=name, type=kinds.CONTROL) for name in SPECIAL_TOKENS]
    special[-1].type = kinds.UNKNOWN
    del model.pieces[:]
    model.pieces.extend([*special, *own])
    trainer = model.trainer_spec
    trainer.vocab_size = len(model.pieces)
    trainer.unk_surface = "⁇"
    trainer.pad_id, trainer.bos_id, trainer.eos_id, trainer.unk_id = range(len(SPECIAL_TOKENS))
    trainer.pad_piece, trainer.bos_piece, trainer.eos_piece, trainer.unk_piece = SPECIAL_TOKENS
    return model


@cache
def _normalization(normalization: str, lowercase: bool, escape: bool) -> bytes:
    """Return a tokenizer's normalization of each character, composed or decomposed, as SentencePiece's table."""
    rules = dict(_ESCAPES) if escape else {}
    changes = normalization != "identity" or lowercase
    for character in _changing(normalization, lowercase) if changes else ():
        parts = unicodedata.normalize("NFD", character)
        forms = [unicodedata.normalize("NFC", parts[:end]) + parts[end:] for end in range(1, len(parts))]
        for form in {character, parts, *forms, unicodedata.normalize("NFKD", character)}:
            # Digits around it keep white space, and compose with nothing.
            after = normalized(f"0{form}0", normalization, lowercase)[1:-1]
            if after != form:
                rules[form] = "".join(_ESCAPES.get(c, c) for c in after) if escape else after
    return _compiled(rules)


def _changing(normalization: str, lowercase: bool) -> Iterator[str]:
    """Yield the characters but those in blocks without a change, such as Chinese characters and unassigned ones."""
    for first in range(0, sys.maxunicode + 1, _BLOCK):
        block = [c for c in map(chr, range(max(1, first), first + _BLOCK)) if unicodedata.category(c) != "Cs"]
        # Digits between them keep white space, and compose with nothing.
        text = f"0{'0'.join(block)}0"
        forms = {unicodedata.normalize("NFD", text), unicodedata.normalize("NFKD", text)}
        if forms | {normalized(text, normalization, lowercase)} != {text}:
            yield from block


def _compiled(rules: dict[str, str]) -> bytes:
    """Return SentencePiece's table of replacements, which only its trainer compiles."""
    if not rules:
        return b""
    from sentencepiece import sentencepiece_model_pb2

    proto: Any = sentencepiece_model_pb2
    model = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rules.tsv"
        lines = ("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) for rule in rules.items())
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["ab"]),
            model_writer=model,
            model_type="char",
            vocab_size=6,
            normalization_rule_tsv=str(path),
            num_threads=1,
            minloglevel=2,
        )
    return proto.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap
