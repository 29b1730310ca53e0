"""Word tokenization for metrics: sacreBLEU's tokenizers, chosen by script."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, get_args

from s2s.data.scripts import is_unspaced, unspaced_script
from s2s.errors import UserError
from s2s.recipe.schema import BleuTokenizer

if TYPE_CHECKING:
    from sacrebleu.metrics.ter import TER
    from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

TOKENIZERS: tuple[BleuTokenizer, ...] = get_args(BleuTokenizer)
SPLITS_AT_SPACES = ("13a", "none")
"""Tokenizers for which TER is sacreBLEU's own, with Tercom's tokens."""
_REMEDIES = {
    "ja-mecab": "pip install 'sacrebleu[ja]', or choose char",
    "ko-mecab": "pip install 'sacrebleu[ko]', or choose 13a",
    "flores200": "connect to the internet once: sacreBLEU downloads the sentencepiece model into ~/.sacrebleu/models; "
    "or choose char",
}


@dataclass(frozen=True)
class Tokenization:
    """Tokenization of metrics."""

    tokenizer: BleuTokenizer = "13a"  # sacreBLEU tokenizer for BLEU and TER
    unspaced: bool = False  # the references have no spaces between words, so WER and CIDEr-D count characters


SPACED = Tokenization()
"""sacreBLEU's default, for text with spaces between words."""


def choose_tokenization(
    references: Sequence[str] | Sequence[Sequence[str]], tokenizer: BleuTokenizer = "auto"
) -> Tokenization:
    """Choose the tokenization by the script of the references.

    `auto` selects `zh` for Chinese, `ja-mecab` for Japanese if it is installed, `char` for Japanese otherwise and for
    other scripts without spaces between words, and `13a` for everything else.

    Raises:
        UserError: The tokenizer needs a package or a file that is missing.

    Example:
        >>> choose_tokenization(["A small dog runs."]).tokenizer
        '13a'
        >>> choose_tokenization(["一只小狗在跑。"])
        Tokenization(tokenizer='zh', unspaced=True)
    """
    texts = list(_flat(references))
    if tokenizer != "auto":
        check_choice(tokenizer)
        return Tokenization(tokenizer, is_unspaced(texts))
    script = unspaced_script(texts)
    if script is None:
        return SPACED
    chosen: BleuTokenizer = "char"
    if script == "Chinese":
        chosen = "zh"
    elif script == "Japanese" and _has_mecab():
        chosen = "ja-mecab"
    return Tokenization(chosen, is_unspaced(texts))


def describe_tokenizer(tokenizer: str, references: Sequence[str] | Sequence[Sequence[str]]) -> str:
    """Describe the tokenization of references in one line; empty for sacreBLEU's default."""
    texts = list(_flat(references))
    script = unspaced_script(texts)
    if script and tokenizer in SPLITS_AT_SPACES and is_unspaced(texts):
        unsuited = f"{tokenizer}, which splits at spaces, but {script} has no spaces between words"
        return f"tokenizer of BLEU and TER: {unsuited}; WER counts characters"
    if tokenizer == "13a":
        return ""
    why = f" ({script} references)" if script else ""
    more = "; WER counts characters" if is_unspaced(texts) else ""
    if script == "Japanese" and tokenizer == "char" and not _has_mecab():
        more += "; for words: pip install 'sacrebleu[ja]', then tokenizer ja-mecab is chosen"
    return f"tokenizer of BLEU and TER: {tokenizer}{why}{more}"


def check_tokenizer(tokenizer: str, where: str) -> None:
    """Refuse a tokenizer whose package or model file is missing; the remedy names the package."""
    if tokenizer in _REMEDIES:
        try:
            load_tokenizer(tokenizer)
        except (RuntimeError, ImportError, OSError, SystemExit, AssertionError):
            missing = "its sentencepiece model" if tokenizer == "flores200" else "its dictionary package"
            raise UserError(f"needs {missing}, which is not installed", where, _REMEDIES[tokenizer]) from None


def check_choice(tokenizer: str) -> None:
    """Refuse an unknown tokenizer, or one whose package or model file is missing."""
    if tokenizer not in TOKENIZERS:
        raise UserError(f"unknown tokenizer {tokenizer!r:.60}", remedy=f"name one of {', '.join(TOKENIZERS)}")
    check_tokenizer(tokenizer, f"tokenizer {tokenizer}")


def load_tokenizer(tokenizer: str) -> "BaseTokenizer":
    """Return the sacreBLEU tokenizer with this name."""
    from sacrebleu.metrics.bleu import BLEU

    return BLEU(tokenize=tokenizer).tokenizer


def tokenized_ter(tokenizer: str, lowercase: bool) -> "TER":
    """Create a TER metric over the tokens of another tokenizer; Tercom's splits only at spaces."""
    from sacrebleu.metrics.ter import TER

    cut = load_tokenizer(tokenizer)

    class TokenizedTER(TER):
        """TER whose signature names the tokenizer."""

        def __init__(self) -> None:
            super().__init__(case_sensitive=not lowercase)
            self.tokenizer_signature = cut.signature()

        def _preprocess_segment(self, sent: str) -> str:
            return super()._preprocess_segment(cut(sent.rstrip()))

    return TokenizedTER()


def _flat(references: Sequence[str] | Sequence[Sequence[str]]) -> Iterable[str]:
    return (text for each in references for text in ([each] if isinstance(each, str) else each))


def _has_mecab() -> bool:
    return find_spec("MeCab") is not None and find_spec("ipadic") is not None
