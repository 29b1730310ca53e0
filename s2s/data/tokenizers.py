"""Text into pieces and back: sentencepiece (unigram, bpe, char, word) and plain bytes.

All normalisation happens here, in `Tokenizer.normalize`, and sentencepiece is told to change nothing. So
`decode(encode(text)) == normalize(text)` for any Unicode text, as long as nothing in it is unknown: with `bytes`, and
with `unigram` and `bpe` that have `byte_fallback`, nothing ever is. Pieces of kind `word` come back with one space
between them, which is what every normalisation but `identity` leaves there.
"""

import hashlib
import io
import itertools
import json
import mmap
import re
import resource
import threading
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece
from pydantic import BaseModel

from s2s.data.published import WordPieces, unpack_tokenizer
from s2s.errors import UserError
from s2s.files import LARGE_BYTES, read_file
from s2s.json_files import read_json
from s2s.recipe.schema import PieceSettings, TokenizerSettings

PAD, BOS, EOS, UNK = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

_MOST_LINES = 2_000_000
_LONGEST_LINE = 2_000
_THREADS = 16
_WORKSPACE = 1 << 29

# Sentencepiece writes a space as U+2581, learns nothing from a line with U+2585 in it, never learns NUL, and cuts line
# ends off. These travel as noncharacters, which Unicode sets apart for a program's own use; a noncharacter that does
# occur in a text is marked by another one, so that nothing is lost.
_RESERVED = "\u2581\u2585\0\n\r"
_MARK = "\ufdd0"
_STAND_INS = "".join(chr(ord(_MARK) + 1 + i) for i in range(len(_RESERVED)))
_TO_ESCAPE = re.compile(f"[{_RESERVED}{_MARK}{_STAND_INS}]")
_ESCAPED = re.compile(f"{_MARK}([{_MARK}{_STAND_INS}])|[{_STAND_INS}]")
_OUTWARD = dict(zip(_RESERVED, _STAND_INS, strict=True)) | {c: _MARK + c for c in _MARK + _STAND_INS}
_INWARD = {stand_in: text for text, stand_in in _OUTWARD.items()}


def normalized(text: str, normalization: str, lowercase: bool) -> str:
    """A text as `Tokenizer.normalize` makes it, by the recipe's keys."""
    composed = normalization == "nfkc"
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if lowercase:
        text = text.lower()
        # there is no single character for H\u0331, but there is one for h\u0331
        text = unicodedata.normalize("NFKC", text) if composed else text
    return " ".join(text.split()) if composed else text


class Tokenizer:
    """Cuts text into numbered pieces and joins them again.

    The numbers 0 to 3 are `PAD`, `BOS`, `EOS` and `UNK`. A text begins with a space of its own, so that a word is the
    same piece at the beginning as elsewhere; decoding takes that space away.

    What is unknown becomes `UNK`, which decoding shows as `⁇`: each new word to `word`; to `char`, new characters, of
    which several in a row become one. With `bytes`, the piece of byte b has the number b + 4. The model is
    sentencepiece's, as it is stored, empty for `bytes`, and for `published` what `s2s.data.published` packs.
    """

    def __init__(self, model: bytes, kind: str, normalization: str, lowercase: bool) -> None:
        self.kind = kind
        self.normalization = normalization
        self.lowercase = lowercase
        self._model = model
        known = {"word": _Words, "published": unpack_tokenizer}
        self._pieces = _Bytes() if kind == "bytes" else known.get(kind, _Learned)(model)

    @property
    def size(self) -> int:
        """Number of pieces, the four special ones included."""
        return self._pieces.size

    @property
    def mask(self) -> int:
        """The number of the mask piece, which stands for a piece that is not shown: the first that no text has.

        It is no piece of the tokenizer. A model that reads it has one row more in its table, and every tokenizer, old
        or new, serves such a model and all others alike.
        """
        return self._pieces.size

    @property
    def writes_lowercase(self) -> bool:
        """Whether no text that it gives back has a capital letter, so that none is to be had in a score."""
        return self.lowercase or getattr(self._pieces, "lowercase", False)

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides how text is cut."""
        return _digest(self._model, self._settings())

    def normalize(self, text: str) -> str:
        """The text as the model sees it, and as `decode` gives it back.

        `identity` keeps every character. `nfkc` applies Unicode's NFKC (as Python's `unicodedata` does), turns each run
        of white space (what `str.isspace` calls so) into one space, and takes it away at both ends. `lowercase`
        applies `str.lower`.
        """
        return normalized(text, self.normalization, self.lowercase)

    def encode(self, text: str) -> list[int]:
        """The pieces of a text, as numbers; no special ones are added."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of each text; all processor threads share the work."""
        return self._pieces.encode([self.normalize(text) for text in texts])

    def encode_continuation(self, text: str) -> list[int]:
        """The pieces of a text that goes on within a word or a line: no space of its own stands before it."""
        return self._pieces.encode_continuation(self.normalize(text))

    def begins_after(self, text: str) -> bool:
        """Whether a word begins after a text: after nothing or a space, and as BERT has it, after punctuation, too."""
        apart = isinstance(self._pieces, WordPieces) and self._pieces.ends_word(text)
        return apart or text == "" or text[-1].isspace()

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces; padding, begin, end and what is no piece, such as a sentinel, are passed over.

        Bytes that are not UTF-8 become U+FFFD.
        """
        return self._pieces.decode([int(i) for i in ids if UNK <= i < self.size])

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Each piece as it is shown in a picture: `▁` stands for a space, `<0xC3>` for a byte."""
        return [SPECIAL_TOKENS[i] if i <= UNK else self._pieces.show(int(i)) for i in ids]

    def save(self, folder: Path, side: str) -> None:
        """Writes `<side>.model` and `<side>.json`."""
        (folder / f"{side}.model").write_bytes(self._model)
        described = self._settings() | {"size": self.size, "digest": self.digest}
        (folder / f"{side}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path, side: str) -> "Tokenizer":
        """Reads what `save` wrote.

        Raises:
            UserError: a file is missing or is no longer what was saved.
        """
        remedy = "copy the tokenizer's two files again from where the model was trained: it fits no other tokenizer"
        try:
            model = read_file(folder / f"{side}.model", remedy, LARGE_BYTES)
        except OSError as error:
            missing = isinstance(error, FileNotFoundError)
            what = "there is no such file" if missing else f"cannot be read: {error.strerror}"
            raise UserError(what, str(folder / f"{side}.model"), remedy) from None
        described = read_json(folder / f"{side}.json", _Described, remedy)
        settings, saved = described.model_dump(exclude={"digest"}), described.digest
        if (digest := _digest(model, settings)) != saved:
            changed = (
                f"{side}.model or {side}.json has changed since it was saved: digest {digest[:12]}, not {saved[:12]}"
            )
            raise UserError(changed, where=str(folder), remedy=remedy)
        try:
            # whoever changed a file may have changed the digest, too
            return Tokenizer(model, **PieceSettings(**settings).model_dump(include=set(settings)))
        except (ValueError, RuntimeError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{side}.model and {side}.json are no tokenizer: {str(error).splitlines()[0]}"
            raise UserError(what, where=str(folder), remedy=remedy) from None

    def _settings(self) -> dict[str, object]:
        return {"kind": self.kind, "normalization": self.normalization, "lowercase": self.lowercase}


def _digest(model: bytes, settings: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\n" + model).hexdigest()


class _Described(BaseModel):
    """The settings of a tokenizer's JSON file."""

    kind: str
    normalization: str
    lowercase: bool
    digest: str


class _Bytes:
    """Between normalised text and numbers: each byte is a piece."""

    size = 256 + len(SPECIAL_TOKENS)

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [self.encode_continuation(text) for text in texts]

    def encode_continuation(self, text: str) -> list[int]:
        return [byte + len(SPECIAL_TOKENS) for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        runs = itertools.groupby(ids, key=lambda i: i == UNK)
        return "".join("⁇" * len(list(run)) if unknown else self._text(run) for unknown, run in runs)

    def show(self, piece: int) -> str:
        byte = piece - len(SPECIAL_TOKENS)
        return "▁" if byte == 0x20 else chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>"

    def _text(self, ids: Iterable[int]) -> str:
        return bytes(i - len(SPECIAL_TOKENS) for i in ids).decode(errors="replace")


class _Learned:
    """As `_Bytes`, by pieces that sentencepiece has learned."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self._processor.get_piece_size() if model else 0
        if (
            self.size <= len(SPECIAL_TOKENS)
            or tuple(map(self._processor.id_to_piece, range(len(SPECIAL_TOKENS)))) != SPECIAL_TOKENS
        ):
            raise ValueError(f"its first pieces are not {', '.join(SPECIAL_TOKENS)}")

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self._processor.encode([_escape(text) for text in texts])

    def encode_continuation(self, text: str) -> list[int]:
        return self._processor.encode(_escape(text).removeprefix(" "))

    def decode(self, ids: list[int]) -> str:
        return _unescape(self._processor.decode(ids).removeprefix(" "))

    def show(self, piece: int) -> str:
        return _unescape(self._processor.id_to_piece(piece))


class _Words(_Learned):
    """One piece for each word, whatever stands beside it: sentencepiece would make one of several unknown ones."""

    def encode(self, texts: list[str]) -> list[list[int]]:
        rows = super().encode(texts)
        for number, text in enumerate(texts):
            if UNK in rows[number]:
                rows[number] = [piece for word in super().encode(text.split(" ")) for piece in word]
        return rows


def _escape(text: str) -> str:
    if not text:
        return ""
    return " " + _TO_ESCAPE.sub(lambda match: _OUTWARD[match[0]], text)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda match: _INWARD[match[0]], text)


def train_pair(
    sources: Iterable[str], targets: Iterable[str], settings: TokenizerSettings, marks: Sequence[str] = ()
) -> tuple[Tokenizer, Tokenizer]:
    """The tokenizers of source and target; the same object twice, trained on both, when they share one vocabulary.

    Marks are words of sources that are a piece each.
    """
    if settings.shared:
        shared = train(itertools.chain(sources, targets), settings, "shared", marks)
        return shared, shared
    return train(sources, settings.of("source"), "source", marks), train(targets, settings.of("target"), "target")


def train(lines: Iterable[str], settings: PieceSettings, side: str, marks: Sequence[str] = ()) -> Tokenizer:
    """Learns the pieces of a corpus; the same lines and settings give the same bytes.

    Of more than two million lines, one to two million are taken, spread evenly. Lines of more than 2,000 characters are
    cut, never left out. With `unigram` and `bpe`, the most frequent characters, which make up 99.95 % of the text, are
    pieces; the others are spelt in bytes, or unknown. `char` and `word` take the most frequent characters and words.
    Marks are words that are a piece each, however seldom they are; to `bytes`, they are bytes.

    Raises:
        UserError: the corpus is empty, or `tokenizer.size` is larger or smaller than it allows.
    """
    if settings.kind == "published":
        raise UserError("published comes with weights, and is not learned", "tokenizer.kind", "choose another kind")
    if settings.kind == "bytes":
        return Tokenizer(b"", settings.kind, settings.normalization, settings.lowercase)
    if settings.kind in ("char", "word") and settings.size <= len(SPECIAL_TOKENS):
        raise _too_small(settings, side, len(SPECIAL_TOKENS) + 1)
    texts = (normalized(line, settings.normalization, settings.lowercase) for line in lines)
    parts = _thinned(part for text in texts for part in _parts(text))
    if not parts:
        raise UserError(f"there is no text to learn pieces from ({side})", "data.train", "name a file that has some")
    whole = [_escape(normalized(mark, settings.normalization, settings.lowercase)).replace(" ", "▁") for mark in marks]
    return Tokenizer(_learn(parts, settings, side, whole), settings.kind, settings.normalization, settings.lowercase)


def _parts(line: str) -> Iterator[str]:
    return (_escape(line[start : start + _LONGEST_LINE]) for start in range(0, len(line), _LONGEST_LINE))


def _thinned(lines: Iterable[str]) -> list[str]:
    # sentencepiece could sample, but draws different lines in each process
    kept: list[str] = []
    stride = 1
    for number, line in enumerate(lines):
        if number % stride == 0:
            kept.append(line)
        if len(kept) > _MOST_LINES:
            kept = kept[::2]
            stride *= 2
    return kept


def _learn(lines: list[str], settings: PieceSettings, side: str, whole: Sequence[str]) -> bytes:
    subwords = settings.kind in ("unigram", "bpe")
    model = io.BytesIO()
    _check_threads()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            # without room for the special pieces sentencepiece does not say what is missing
            vocab_size=max(settings.size, len(SPECIAL_TOKENS) + 1),
            hard_vocab_limit=subwords,
            byte_fallback=subwords and settings.byte_fallback,
            character_coverage=0.9995 if subwords else 1.0,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            # an unknown word includes the space before it
            unk_surface=" ⁇" if settings.kind == "word" else "⁇",
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            max_sentence_length=8 * _LONGEST_LINE,
            # sums of floats depend on how many threads share them: the machine must not decide
            num_threads=_THREADS,
            minloglevel=2,
            user_defined_symbols=list(whole),
        )
    except RuntimeError as error:
        raise _explained(str(error), settings, side) from error
    return model.getvalue()


def _check_threads() -> None:
    """Starts as many threads as sentencepiece will, which would end the whole process where one cannot be started."""
    enough, started = threading.Event(), []
    limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    try:
        # what the learning itself takes beside its threads
        with mmap.mmap(-1, _WORKSPACE if limited else 1):
            for _ in range(_THREADS):
                thread = threading.Thread(target=enough.wait)
                thread.start()
                started.append(thread)
    except (RuntimeError, OSError):
        raise UserError(
            f"there is no memory to start {_THREADS} threads, with which pieces are learned",
            where="tokenizer.kind",
            remedy="allow this process more memory (ulimit -v, -u), or set tokenizer.kind=bytes",
        ) from None
    finally:
        enough.set()
        for thread in started:
            thread.join()


def _explained(error: str, settings: PieceSettings, side: str) -> Exception:
    if most := re.search(r"Please set it to a value <= (\d+)", error):
        return UserError(
            f"{settings.size} pieces are more than the training text ({side}) gives; the largest size is {most[1]}",
            where=f"{_section(side)}.size",
            remedy=f"set {_section(side)}.size={most[1]} or lower, or train on more text",
        )
    if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return _too_small(settings, side, int(least[1]))
    return RuntimeError(f"sentencepiece failed: {error}")


def _too_small(settings: PieceSettings, side: str, smallest: int) -> UserError:
    return UserError(
        f"{settings.size} pieces are too few for the training text ({side}): "
        f"its characters and the special pieces need {smallest}",
        where=f"{_section(side)}.size",
        remedy=f"set {_section(side)}.size={smallest} or higher, or {_section(side)}.kind=bytes",
    )


def _section(side: str) -> str:
    return f"tokenizer.{side}" if side in ("source", "target") else "tokenizer"
