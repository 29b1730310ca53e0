"""Tokenizers: sentencepiece (unigram, bpe, char, word), bytes, and published ones.

`train` or `train_pair` makes a `Tokenizer`; `Tokenizer.save` and `Tokenizer.load` store it.

All normalization happens in `Tokenizer.normalize`; sentencepiece's own is switched off. So `decode(encode(text)) ==
normalize(text)` for any Unicode text without unknown tokens: with `bytes`, and with `unigram` and `bpe` that have
`byte_fallback`, no token is ever unknown. Tokens of kind `word` are joined with one space between them, which is what
every normalization except `identity` leaves there.
"""

import hashlib
import io
import itertools
import json
import mmap
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import sentencepiece
from pydantic import BaseModel

from s2s.arguments import check_utf8
from s2s.errors import UserError
from s2s.files import LARGE_BYTES, read_file
from s2s.json_files import read_json
from s2s.process import limit
from s2s.recipe.schema import PieceSettings, TokenizerSettings

PAD, BOS, EOS, UNK = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")

_SUBWORDS = ("unigram", "bpe")
_MOST_LINES = 2_000_000
_LONGEST_LINE = 2_000
_THREADS = 16
_WORKSPACE = 1 << 29

# Sentencepiece writes a space as U+2581, learns nothing from a line with U+2585 in it, never learns NUL, and cuts line
# ends off. These characters are replaced by noncharacters, which Unicode reserves for a program's internal use. A
# noncharacter that occurs in a text is escaped with another one, so that no text is changed.
_RESERVED = "\u2581\u2585\0\n\r"
_MARK = "\ufdd0"
_STAND_INS = "".join(chr(ord(_MARK) + 1 + i) for i in range(len(_RESERVED)))
_TO_ESCAPE = re.compile(f"[{_RESERVED}{_MARK}{_STAND_INS}]")
_ESCAPED = re.compile(f"{_MARK}([{_MARK}{_STAND_INS}])|[{_STAND_INS}]")
ESCAPES = dict(zip(_RESERVED, _STAND_INS, strict=True)) | {c: _MARK + c for c in _MARK + _STAND_INS}
_INWARD = {stand_in: text for text, stand_in in ESCAPES.items()}


def normalized(text: str, normalization: str, lowercase: bool) -> str:
    """Normalize a text by the recipe's keys, see `Tokenizer.normalize`.

    Example:
        >>> normalized(" ① Straße", "nfkc", lowercase=True)
        '1 straße'
    """
    composed = normalization == "nfkc"
    if composed:
        text = unicodedata.normalize("NFKC", text)
    if lowercase:
        text = text.lower()
        # Unicode has no single character for H\u0331, but one for h\u0331.
        text = unicodedata.normalize("NFKC", text) if composed else text
    return " ".join(text.split()) if composed else text


def describe_changes(texts: Iterable[str], normalization: str) -> str:
    r"""Describe the texts that a normalization changes, white space at the ends aside.

    A model generates normalized text, but references are kept unchanged. So a reference that the normalization changes
    can never be generated exactly.

    Example:
        >>> describe_changes(["x\u00b2 = 4", "plain"], "nfkc")
        "1 target, e.g. 'x²' to 'x2'"
    """
    count, example = 0, ""
    for text in texts:
        if normalized(text, normalization, False).strip() != text.strip():
            count += 1
            if not example:
                changes = ((word, normalized(word, normalization, False)) for word in re.findall(r"\S+", text))
                found = (f"{one[:30]!r} to {other[:30]!r}" for one, other in changes if one != other)
                example = next(found, f"the white space of {text[:30]!r}")
    return f"{count:,} target{'s' * (count != 1)}, e.g. {example}" if count else ""


class Tokenizer:
    """Tokenizer: text to token ids and back.

    Ids 0 to 3 are `PAD`, `BOS`, `EOS` and `UNK`. Sentencepiece models get a space before each text, so that a word has
    the same token at the beginning as elsewhere; decoding removes this space.

    Unknown text becomes `UNK`, which decodes as `⁇`: with `word`, each unknown word; with `char`, unknown characters,
    where several in a row become one. With `bytes`, byte b has the id b + 4.

    Args:
        model: Serialized model: sentencepiece's; empty for `bytes`; for `published`, see `s2s.data.published`.
        kind: `unigram`, `bpe`, `char`, `word`, `bytes` or `published`.
        normalization: `identity` or `nfkc`, see `normalize`.
        lowercase: Whether text is lowercased before it is tokenized.

    Example:
        >>> tokenizer = Tokenizer(b"", "bytes", "identity", lowercase=False)
        >>> tokenizer.encode("Hé")
        [76, 199, 173]
        >>> tokenizer.decode([76, 199, 173]), tokenizer.tokens([1, 76, 199, 173])
        ('Hé', ['<s>', 'H', '<0xC3>', '<0xA9>'])
    """

    def __init__(self, model: bytes, kind: str, normalization: str, lowercase: bool) -> None:
        self.kind = kind
        self.normalization = normalization
        self.lowercase = lowercase
        self.model = model
        if kind == "published":
            from s2s.data.published import unpack_tokenizer

            self._pieces = unpack_tokenizer(model)
        elif kind == "bytes":
            self._pieces = _Bytes()
        else:
            self._pieces = (_Words if kind == "word" else _Learned)(model)

    @property
    def size(self) -> int:
        """Vocabulary size, including the four special tokens."""
        return self._pieces.size

    @property
    def mask(self) -> int:
        """Id of the mask token (masked language modeling): the first id that no text has.

        The mask is not part of the vocabulary: a model that reads it has one more row in its embedding table. So the
        same tokenizer serves models with and without a mask.
        """
        return self._pieces.size

    @property
    def writes_lowercase(self) -> bool:
        """True if decoded text never has capital letters, so that scores must ignore case."""
        return self.lowercase or getattr(self._pieces, "lowercase", False)

    @property
    def digest(self) -> str:
        """SHA-256 of the model and all settings that affect tokenization."""
        return _digest(self.model, self._settings())

    def normalize(self, text: str) -> str:
        """Normalize a text; `decode` gives text back in this form.

        `identity` keeps every character. `nfkc` applies Unicode NFKC (as Python's `unicodedata` does), folds each run
        of white space (as defined by `str.isspace`) into one space, and strips both ends. `lowercase` applies
        `str.lower`.
        """
        return normalized(text, self.normalization, self.lowercase)

    def encode(self, text: str) -> list[int]:
        """Normalize a text and return its token ids, without special tokens."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Normalize texts and return their token ids, without special tokens, using all CPUs.

        Raises:
            UserError: A text has surrogates, which UTF-8 cannot encode.
        """
        try:
            return self._pieces.encode([self.normalize(text) for text in texts])
        except (RuntimeError, TypeError, UnicodeEncodeError):
            for text in texts:
                check_utf8(text, "text", "correct it")
            raise

    def sampler(self, rate: float) -> Callable[[str, Iterator[float]], list[int]] | None:
        """Return a function that draws a tokenization of a text (subword regularization).

        Args:
            rate: `unigram`: exponent of the probabilities; `bpe`: dropout rate of the merges.

        Returns:
            A function of the text and of random numbers in [0, 1); None if each text has a single tokenization.

        Raises:
            UserError: The dropout rate is 1 or more.
        """
        if self.kind not in _SUBWORDS:
            return None
        if self.kind == "bpe" and rate >= 1:
            what = f"{rate} is not a share of merges to leave out (tokenizer of kind bpe)"
            raise UserError(what, "tokenizer.sampling", "set it below 1")
        from s2s.data.subword_sampling import BpeSampler, UnigramSampler

        sample = (BpeSampler if self.kind == "bpe" else UnigramSampler)(self.model, rate).sample
        return lambda text, numbers: sample(_escape(self.normalize(text)).replace(" ", "▁"), numbers)

    def encode_continuation(self, text: str) -> list[int]:
        """Return the token ids of a text that continues a word or line: no space is added."""
        return self._pieces.encode_continuation(self.normalize(text))

    def begins_after(self, text: str) -> bool:
        """Return True if text after this one begins a new word: BERT's tokenizer also splits at punctuation."""
        ends_word = getattr(self._pieces, "ends_word", None)
        return text == "" or text[-1].isspace() or bool(ends_word and ends_word(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Convert token ids to text.

        Padding, `BOS`, `EOS` and ids outside the vocabulary, such as sentinels, are skipped. Bytes that are not UTF-8
        become U+FFFD.
        """
        return self._pieces.decode([int(i) for i in ids if UNK <= i < self.size])

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return each token as text for display: `▁` is a space, `<0xC3>` a byte."""
        return [SPECIAL_TOKENS[i] if i <= UNK else self._pieces.show(int(i)) for i in ids]

    def save(self, folder: Path, side: str) -> None:
        """Write `<side>.model` and `<side>.json` into a folder."""
        (folder / f"{side}.model").write_bytes(self.model)
        described = self._settings() | {"size": self.size, "digest": self.digest}
        (folder / f"{side}.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path, side: str) -> "Tokenizer":
        """Load the tokenizer that `save` wrote.

        Raises:
            UserError: A file is missing, or has changed since it was saved.
        """
        remedy = "copy both files of the tokenizer again from the run that trained the model"
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
            # A file that was changed along with its digest passes the check above.
            return Tokenizer(model, **PieceSettings(**settings).model_dump(include=set(settings)))
        except (ValueError, RuntimeError, KeyError, TypeError, AttributeError, RecursionError) as error:
            what = f"{side}.model and {side}.json are not a tokenizer: {str(error).splitlines()[0]}"
            raise UserError(what, where=str(folder), remedy=remedy) from None

    def _settings(self) -> dict[str, object]:
        return {"kind": self.kind, "normalization": self.normalization, "lowercase": self.lowercase}


def _digest(model: bytes, settings: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + b"\n" + model).hexdigest()


class _Described(BaseModel):
    """Contents of a tokenizer's JSON file."""

    kind: str
    normalization: str
    lowercase: bool
    digest: str


class _Bytes:
    """Byte-level vocabulary: each byte is a token."""

    size = 256 + len(SPECIAL_TOKENS)

    def encode(self, texts: list[str]) -> list[list[int]]:
        return [self.encode_continuation(text) for text in texts]

    def encode_continuation(self, text: str) -> list[int]:
        return [byte + len(SPECIAL_TOKENS) for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        return "".join(
            "⁇" * len(list(run)) if unknown else bytes(i - len(SPECIAL_TOKENS) for i in run).decode(errors="replace")
            for unknown, run in itertools.groupby(ids, key=lambda i: i == UNK)
        )

    def show(self, token: int) -> str:
        byte = token - len(SPECIAL_TOKENS)
        return "▁" if byte == 0x20 else chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>"


# Fewer texts than these take less time one by one than the start of threads: 0.06 ms, and 3 ms on a busy machine.
_FEW_TEXTS = 64


class _Learned:
    """Vocabulary of a sentencepiece model."""

    def __init__(self, model: bytes) -> None:
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.size = self._processor.get_piece_size() if model else 0
        if (
            self.size <= len(SPECIAL_TOKENS)
            or tuple(map(self._processor.id_to_piece, range(len(SPECIAL_TOKENS)))) != SPECIAL_TOKENS
        ):
            raise ValueError(f"its first tokens are not {', '.join(SPECIAL_TOKENS)}")

    def encode(self, texts: list[str]) -> list[list[int]]:
        escaped = [_escape(text) for text in texts]
        # A list is encoded by threads that are started for it.
        if len(escaped) < _FEW_TEXTS:
            return [self._processor.encode(text) for text in escaped]
        return self._processor.encode(escaped)

    def encode_continuation(self, text: str) -> list[int]:
        return self._processor.encode(_escape(text).removeprefix(" "))

    def decode(self, ids: list[int]) -> str:
        text = self._processor.decode(ids).removeprefix(" ")
        return _ESCAPED.sub(lambda match: _INWARD[match[0]], text)

    def show(self, token: int) -> str:
        return _ESCAPED.sub(lambda match: _INWARD[match[0]], self._processor.id_to_piece(token))


class _Words(_Learned):
    """Word-level vocabulary: one token for each word.

    Sentencepiece alone would merge several unknown words in a row into one token.
    """

    def encode(self, texts: list[str]) -> list[list[int]]:
        rows = super().encode(texts)
        unknown = [number for number, row in enumerate(rows) if UNK in row]
        words = list(dict.fromkeys(word for number in unknown for word in texts[number].split(" ")))
        tokens = dict(zip(words, super().encode(words), strict=True))
        for number in unknown:
            rows[number] = [token for word in texts[number].split(" ") for token in tokens[word]]
        return rows


def _escape(text: str) -> str:
    if not text:
        return ""
    return " " + _TO_ESCAPE.sub(lambda match: ESCAPES[match[0]], text)


def train_pair(
    sources: Iterable[str], targets: Iterable[str], settings: TokenizerSettings, marks: Sequence[str] = ()
) -> tuple[Tokenizer, Tokenizer]:
    """Train the tokenizers of source and target; with `shared`, one object for both."""
    if settings.shared:
        shared = train(itertools.chain(sources, targets), settings, "shared", marks)
        return shared, shared
    return train(sources, settings.of("source"), "source", marks), train(targets, settings.of("target"), "target")


def train(lines: Iterable[str], settings: PieceSettings, side: str, marks: Sequence[str] = ()) -> Tokenizer:
    """Train a tokenizer; the same lines and settings give the same bytes.

    Of more than two million lines, a sample of one to two million is used, evenly spaced. Lines of more than 2,000
    characters are split, never dropped. With `unigram` and `bpe`, the most frequent characters, which make up 99.95 %
    of the text, are in the vocabulary; others are spelled in bytes, or unknown. `char` and `word` take the most
    frequent characters and words.

    Args:
        lines: Training texts.
        settings: Kind, vocabulary size and normalization.
        side: `source`, `target` or another name for the texts, used in messages.
        marks: Words that are one token each, however rare they are; `bytes` encodes them in bytes.

    Raises:
        UserError: There is no text, or `tokenizer.size` is smaller than the text allows.

    Returns:
        The tokenizer, smaller than `settings.size` if the text does not give as many tokens (see `lowered_sizes`).

    Example:
        >>> settings = PieceSettings(kind="char", size=100)
        >>> tokenizer = train(["a banana", "band"], settings, "source")
        >>> tokenizer.size, tokenizer.decode(tokenizer.encode("nab"))
        (9, 'nab')
    """
    if settings.model is not None:
        path = Path(settings.model)
        return (_load_json if path.suffix == ".json" else _load_sentencepiece)(path, settings, side)
    if settings.kind == "published":
        raise UserError(
            "published tokenizers come with weights and are not trained", "tokenizer.kind", "choose another kind"
        )
    if settings.kind == "bytes":
        return Tokenizer(b"", settings.kind, settings.normalization, settings.lowercase)
    if settings.kind in ("char", "word") and settings.size <= len(SPECIAL_TOKENS):
        raise _size_error(settings, side, len(SPECIAL_TOKENS) + 1)
    parts = _thinned(
        _escape(text[start : start + _LONGEST_LINE])
        for text in (normalized(line, settings.normalization, settings.lowercase) for line in lines)
        for start in range(0, len(text), _LONGEST_LINE)
    )
    if not parts:
        raise UserError(f"there is no text to train a tokenizer on ({side})", "data.train", "name a file with text")
    whole = [_escape(normalized(mark, settings.normalization, settings.lowercase)).replace(" ", "▁") for mark in marks]
    return Tokenizer(_learn(parts, settings, side, whole), settings.kind, settings.normalization, settings.lowercase)


def _load_sentencepiece(path: Path, settings: PieceSettings, side: str) -> Tokenizer:
    """Read a trained sentencepiece model; its tokens follow the special ones of s2s."""
    from s2s.data.published import pack_sentencepiece

    where, remedy = f"{_section(side)}.model: {path}", "name a .model file that SentencePiece has written"
    try:
        model = read_file(path, remedy, LARGE_BYTES)
        if not model:
            # An empty model would be no error, but a processor without a model.
            raise RuntimeError("empty")
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    except (OSError, RuntimeError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError("there is no such file" if missing else "is not a SentencePiece model", where, remedy) from None
    own = [i for i in range(processor.get_piece_size()) if not (processor.is_control(i) or processor.is_unknown(i))]
    packed = pack_sentencepiece([processor.id_to_piece(i) for i in own], model)
    return Tokenizer(packed, settings.kind, settings.normalization, settings.lowercase)


def _load_json(path: Path, settings: PieceSettings, side: str) -> Tokenizer:
    """Read the JSON file of a tokenizer of the Hugging Face library `tokenizers`."""
    from s2s.data.published import pack_json

    where, remedy = f"{_section(side)}.model: {path}", "name a JSON file of the Hugging Face library tokenizers"
    try:
        packed = pack_json(read_file(path, remedy, LARGE_BYTES).decode("utf-8"))
    except (OSError, ValueError, KeyError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise UserError("there is no such file" if missing else f"is no tokenizer: {error}", where, remedy) from None
    return Tokenizer(packed, settings.kind, settings.normalization, settings.lowercase)


def lowered_sizes(settings: PieceSettings, tokenizers: Mapping[str, Tokenizer]) -> Iterator[str]:
    """Yield a line for each tokenizer whose training text gave fewer tokens than `tokenizer.size`.

    Args:
        settings: The `tokenizer` section of the recipe.
        tokenizers: Tokenizers by side: `source` and `target`, or one of another name.
    """
    for side, tokenizer in tokenizers.items():
        own = settings
        if isinstance(settings, TokenizerSettings) and (side == "source" or side == "target"):
            own = settings.of(side)
        if own.kind in _SUBWORDS and tokenizer.size < own.size:
            yield (
                f"{_section(side)}.size: lowered from {own.size:,} to {tokenizer.size:,}, the most that the training "
                "text gives"
            )


def _thinned(lines: Iterable[str]) -> list[str]:
    # Sentencepiece can sample, too, but draws different lines in each process.
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
    subwords = settings.kind in _SUBWORDS
    model = io.BytesIO()
    _check_threads()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            model_type=settings.kind,
            # With no space for the special tokens, sentencepiece does not say what is missing.
            vocab_size=max(settings.size, len(SPECIAL_TOKENS) + 1),
            hard_vocab_limit=subwords,
            byte_fallback=subwords and settings.byte_fallback,
            character_coverage=0.9995 if subwords else 1.0,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            # An unknown word includes the space before it.
            unk_surface=" ⁇" if settings.kind == "word" else "⁇",
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            max_sentence_length=8 * _LONGEST_LINE,
            # Sums of floats depend on the number of threads, which is therefore the same on every machine.
            num_threads=_THREADS,
            minloglevel=2,
            user_defined_symbols=list(whole),
        )
    except RuntimeError as error:
        words = str(error)
        if most := re.search(r"Please set it to a value <= (\d+)", words):
            return _learn(lines, settings.model_copy(update={"size": int(most[1])}), side, whole)
        if least := re.search(r"smaller than required_chars\. \d+ vs (\d+)", words):
            raise _size_error(settings, side, int(least[1])) from error
        raise RuntimeError(f"sentencepiece failed: {words}") from error
    return model.getvalue()


def _check_threads() -> None:
    """Start as many threads as sentencepiece will.

    Sentencepiece ends the whole process if it cannot start a thread.
    """
    enough, started = threading.Event(), []
    try:
        # Reserve the memory that training needs besides its threads.
        with mmap.mmap(-1, 1 if limit("AS") is None else _WORKSPACE):
            for _ in range(_THREADS):
                thread = threading.Thread(target=enough.wait)
                thread.start()
                started.append(thread)
    except (RuntimeError, OSError):
        what = f"no memory to start the {_THREADS} threads that train a tokenizer"
        remedy = "allow this process more memory (ulimit -v, -u), or set tokenizer.kind=bytes"
        raise UserError(what, where="tokenizer.kind", remedy=remedy) from None
    finally:
        enough.set()
        for thread in started:
            thread.join()


def _size_error(settings: PieceSettings, side: str, smallest: int) -> UserError:
    return UserError(
        f"{settings.size} tokens are too few for the training text ({side}): "
        f"its characters and the special tokens need {smallest}",
        where=f"{_section(side)}.size",
        remedy=f"set {_section(side)}.size={smallest} or higher, or {_section(side)}.kind=bytes",
    )


def _section(side: str) -> str:
    return f"tokenizer.{side}" if side in ("source", "target") else "tokenizer"
