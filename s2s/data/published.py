"""Tokenizers of published models (Marian, BERT, Hugging Face `tokenizers`), with the ids of s2s.

`SentencePieces` is Marian's tokenizer, `WordPieces` BERT's, `JsonPieces` that of a Hugging Face file. Ids begin with
`<pad>`, `<s>`, `</s>` and `<unk>`; then follow the model's own tokens in their order. Text is tokenized exactly as by
the published tokenizer, so that the model gets the input it was trained on.
"""

import base64
import json
import unicodedata
from collections.abc import Callable
from functools import cached_property
from itertools import groupby
from typing import Any

import sentencepiece

from s2s.errors import UserError

_SPECIALS = 4
_UNK = 3
_SPACE = "▁"
_CAPITALS = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZΑΒΓΔАБВГ")


def pack_sentencepiece(pieces: list[str], model: bytes) -> bytes:
    """Serialize a Marian tokenizer (tokens after the special ones, sentencepiece model)."""
    return json.dumps({"pieces": pieces, "model": base64.b64encode(model).decode()}, ensure_ascii=False).encode()


def pack_wordpiece(pieces: list[str], lowercase: bool, strip_accents: bool, split_chinese: bool) -> bytes:
    """Serialize a BERT tokenizer (tokens after the special ones, settings of `WordPieces`)."""
    words = {"lowercase": lowercase, "strip_accents": strip_accents, "split_chinese": split_chinese}
    return json.dumps({"pieces": pieces, "words": words}, ensure_ascii=False).encode()


def pack_json(definition: str) -> bytes:
    """Serialize a Hugging Face tokenizer (text of its JSON file).

    Raises:
        UserError: The package tokenizers is not installed.
        ValueError: The text does not define a tokenizer.
    """
    known = _from_json(definition).get_vocab()
    own = json.loads(definition)
    special = {each["content"] for each in own.get("added_tokens") or () if each["special"]}
    unknown = own["model"].get("unk_token")
    if own["model"]["type"] == "Unigram" and own["model"].get("unk_id") is not None:
        unknown = own["model"]["vocab"][own["model"]["unk_id"]][0]
    pieces = [piece for piece in sorted(known, key=known.__getitem__) if piece not in special and piece != unknown]
    return json.dumps({"pieces": pieces, "json": definition}, ensure_ascii=False).encode()


def _from_json(definition: str) -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise UserError("a tokenizer in JSON needs the package tokenizers", remedy="pip install tokenizers") from None
    try:
        return tokenizers.Tokenizer.from_str(definition)
    except Exception as error:  # the package raises nothing narrower
        raise ValueError(str(error)) from None


def unpack_tokenizer(packed: bytes) -> "SentencePieces | WordPieces | JsonPieces":
    """Build the tokenizer that `pack_sentencepiece`, `pack_wordpiece` or `pack_json` serialized."""
    found = json.loads(packed)
    if "json" in found:
        return JsonPieces(found["pieces"], found["json"])
    return WordPieces(found["pieces"], **found["words"]) if "words" in found else SentencePieces(found)


class SentencePieces:
    """Marian's tokenizer: sentencepiece, and a separate vocabulary for the ids.

    A sentencepiece token that is missing in the vocabulary is unknown. A line may begin with a language code, such as
    `>>deu<<`, which is one token.
    """

    def __init__(self, found: dict[str, Any]) -> None:
        self._names = ["", "", "", "⁇", *found["pieces"]]
        self._numbers = {piece: number for number, piece in enumerate(self._names) if number >= _SPECIALS}
        self._model = base64.b64decode(found["model"])
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=self._model)
        self.size = len(self._names)
        self.lowercase = _writes_lowercase(self)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [self._encode(text, self._processor) for text in texts]

    def encode_continuation(self, text: str) -> list[int]:
        """Return the token ids of a text that continues a word: no space is added before it."""
        return self._encode(text, self._continuing)

    @cached_property
    def _continuing(self) -> sentencepiece.SentencePieceProcessor:
        from sentencepiece import sentencepiece_model_pb2

        proto: Any = sentencepiece_model_pb2  # its classes are made at run time
        model = proto.ModelProto.FromString(self._model)
        model.normalizer_spec.add_dummy_prefix = False
        return sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())

    def _encode(self, text: str, processor: sentencepiece.SentencePieceProcessor) -> list[int]:
        code = text[: text.find("<<") + 2] if text.startswith(">>") and "<<" in text else ""
        pieces = [code] if code else []
        pieces += processor.encode(text[len(code) :], out_type=str)
        return [self._numbers.get(piece, _UNK) for piece in pieces]

    def decode(self, ids: list[int]) -> str:
        """Convert token ids to text."""
        return self._processor.decode_pieces([self._names[i] for i in ids]).replace(_SPACE, " ").strip()

    def show(self, piece: int) -> str:
        """Return a token as text for display."""
        return self._names[piece]


class JsonPieces:
    """Tokenizer of the Hugging Face library `tokenizers`.

    Special tokens of the file have no ids here: no text contains them.
    """

    def __init__(self, pieces: list[str], definition: str) -> None:
        self._tokenizer, self._definition = _from_json(definition), definition
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._names = ["", "", "", "⁇", *pieces]
        self._theirs = [self._tokenizer.token_to_id(piece) for piece in pieces]
        self._numbers = {theirs: number for number, theirs in enumerate(self._theirs, start=_SPECIALS)}
        self.size = len(self._names)
        self.lowercase = _writes_lowercase(self)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        found = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        return [self._own_ids(each.ids) for each in found]

    def encode_continuation(self, text: str) -> list[int]:
        """Return the token ids of a text that continues a word: no space is added before it.

        Raises:
            UserError: The tokens are WordPieces, which this library splits only from the beginning of a word.
        """
        if self._word_pieces and text[:1].isalnum():
            what = f"{text!r} would continue a word, which tokens of a WordPiece model in JSON cannot do here"
            raise UserError(what, remedy="put a space before it")
        return self._own_ids(self._continuing.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _continuing(self) -> Any:
        tokenizer = _from_json(json.dumps(_without_first_space(json.loads(self._definition))))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def _word_pieces(self) -> str:
        """The mark of a token that continues a word; empty if the model is no WordPiece."""
        model = json.loads(self._definition)["model"]
        return model["continuing_subword_prefix"] if model["type"] == "WordPiece" else ""

    @cached_property
    def _bytes(self) -> Any:
        """Decoder of tokens that are bytes; None if tokens are text."""
        from tokenizers import decoders

        definition = json.loads(self._definition)
        parts = json.dumps([definition.get("pre_tokenizer"), definition.get("decoder")])
        return decoders.ByteLevel() if '"ByteLevel"' in parts else None

    def _own_ids(self, theirs: list[int]) -> list[int]:
        return [self._numbers.get(each, _UNK) for each in theirs]

    def decode(self, ids: list[int]) -> str:
        """Convert token ids to text; an unknown token becomes ⁇."""
        parts = [list(part) for _, part in groupby(ids, lambda i: i >= _SPECIALS)]
        texts = (
            self._tokenizer.decode([self._theirs[i - _SPECIALS] for i in part])
            if part[0] >= _SPECIALS
            else " ".join(self._names[i] for i in part if self._names[i])
            for part in parts
        )
        return " ".join(text.strip() for text in texts if text.strip())

    def show(self, piece: int) -> str:
        """Return a token as text for display, with `▁` for a space."""
        name, mark = self._names[piece], self._word_pieces
        if mark:
            return name.removeprefix(mark) if name.startswith(mark) and name != mark else _SPACE + name
        if self._bytes is None:
            return name
        text = self._bytes.decode([name])
        # A part of a character is shown as in the file.
        return name if "\ufffd" in text else text.replace(" ", _SPACE)


def _without_first_space(part: Any) -> Any:
    """Return a definition, or a part of one, that adds no space before a text."""
    if isinstance(part, list):
        return [_without_first_space(each) for each in part if not _is_prepend(each)]
    if not isinstance(part, dict):
        return part
    changed = {key: None if _is_prepend(each) else _without_first_space(each) for key, each in part.items()}
    if part.get("type") == "Metaspace":
        changed["prepend_scheme"] = "never"
    if part.get("type") == "ByteLevel":
        changed["add_prefix_space"] = False
    return changed


def _is_prepend(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "Prepend"


def _writes_lowercase(tokenizer: "SentencePieces | JsonPieces") -> bool:
    """Return True if a text with capital letters loses them in the tokens."""
    text = tokenizer.decode(tokenizer.encode([_CAPITALS])[0])
    return text == text.lower()


_GOES_ON = "##"
_LONGEST_WORD = 100
_REMEMBERED = 1 << 17
# The ranges of the published code, including its gaps.
_CHINESE = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B81F)),
    *((0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class _ByCharacter(dict[int, str | None]):
    """A table for `str.translate`, filled on demand by a rule (None: remove)."""

    def __init__(self, rule: Callable[[str], str | None]) -> None:
        super().__init__()
        self.rule = rule

    def __missing__(self, code: int) -> str | None:
        self[code] = found = self.rule(chr(code))
        return found


def _cleaned(c: str) -> str | None:
    if c in "\t\n\r":
        return " "
    if c == "\ufffd" or unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs"):
        return None
    return " " if c.isspace() else c


def _punctuation_apart(c: str) -> str:
    symbol = c.isascii() and c.isprintable() and not c.isalnum() and c != " "
    return f" {c} " if symbol or unicodedata.category(c).startswith("P") else c


_CLEAN, _PUNCTUATION_APART = _ByCharacter(_cleaned), _ByCharacter(_punctuation_apart)
_CHINESE_APART = _ByCharacter(lambda c: f" {c} " if any(first <= ord(c) <= last for first, last in _CHINESE) else c)
_UNACCENTED = _ByCharacter(lambda c: None if unicodedata.category(c) == "Mn" else c)
# Lowercase each character by itself: in a whole word, a final capital sigma would become the final small sigma.
_LOWER = _ByCharacter(str.lower)


class WordPieces:
    """BERT's WordPiece tokenizer (Devlin et al. 2019): longest match within words.

    White space, punctuation and, with `split_chinese`, Chinese characters end words; control characters are removed. A
    word of more than 100 characters, or without a match, is unknown. Ids equal those of the `tokenizers` library,
    except for some hundred characters that are newer than its Unicode tables. Text never yields a special token:
    `[MASK]` is three words.

    Example:
        >>> tokenizer = WordPieces(["play", "##ing", "!"], lowercase=True, strip_accents=True, split_chinese=True)
        >>> tokenizer.encode(["Playing!"]), tokenizer.decode([4, 5, 6])
        ([[4, 5, 6]], 'playing !')
    """

    def __init__(self, pieces: list[str], lowercase: bool, strip_accents: bool, split_chinese: bool) -> None:
        self._names = ["", "", "", "⁇", *pieces]
        self._numbers = {piece: number for number, piece in enumerate(self._names) if number >= _SPECIALS}
        self.lowercase, self._strip_accents, self._split_chinese = lowercase, strip_accents, split_chinese
        self._cut: dict[str, list[int]] = {}
        self.size = len(self._names)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        return [[piece for word in self._separate_words(text).split() for piece in self._known(word)] for text in texts]

    def encode_continuation(self, text: str) -> list[int]:
        """Return the token ids of a text whose first word continues the word before it.

        Punctuation never continues a word.
        """
        apart = self._separate_words(text)
        first, *others = apart.split() or [""]
        pieces = self._known(first) if apart.startswith(" ") else self._pieces(first, _GOES_ON)
        return [*pieces, *(piece for word in others for piece in self._known(word))]

    def ends_word(self, text: str) -> bool:
        """Return True if any text after this one begins a new word."""
        return self._separate_words(text).endswith(" ")

    def decode(self, ids: list[int]) -> str:
        """Convert token ids to text, with spaces between words and punctuation marks."""
        return "".join(self.show(i) if self._continues_word(i) else f" {self._names[i]}" for i in ids).strip()

    def show(self, piece: int) -> str:
        """Return a token as text for display."""
        name = self._names[piece]
        return name.removeprefix(_GOES_ON) if self._continues_word(piece) else _SPACE + name

    def _continues_word(self, piece: int) -> bool:
        return self._names[piece].startswith(_GOES_ON) and self._names[piece] != _GOES_ON

    def _separate_words(self, text: str) -> str:
        """Return the normalized text with spaces between words."""
        text = text.translate(_CLEAN)
        if self._split_chinese:
            text = text.translate(_CHINESE_APART)
        if self._strip_accents:
            text = unicodedata.normalize("NFD", text).translate(_UNACCENTED)
        if self.lowercase:
            text = text.translate(_LOWER)
        return text.translate(_PUNCTUATION_APART)

    def _known(self, word: str) -> list[int]:
        if word not in self._cut:
            if len(self._cut) >= _REMEMBERED:
                self._cut.clear()
            self._cut[word] = self._pieces(word)
        return self._cut[word]

    def _pieces(self, word: str, prefix: str = "") -> list[int]:
        found, start = [], 0
        while start < len(word) <= _LONGEST_WORD:
            ends = range(len(word), start, -1)
            end = next((end for end in ends if prefix + word[start:end] in self._numbers), None)
            if end is None:
                return [_UNK]
            found.append(self._numbers[prefix + word[start:end]])
            start, prefix = end, _GOES_ON
        return found if len(word) <= _LONGEST_WORD else [_UNK]
