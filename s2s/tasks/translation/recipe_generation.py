"""Generation of a translation recipe from the user's pairs (`s2s new`).

The pairs are read and measured; the recipe gives a reason for every choice.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from s2s.data.pairs import broken_rule, load, load_split, pairs
from s2s.data.sources import Corpus, suspicious_text_lines
from s2s.data.tokenizers import Tokenizer
from s2s.recipe.pairs import FilterSettings
from s2s.recipe.schema import DecodingSettings, Quoting
from s2s.tasks.recipe_generation import (
    Files,
    Splits,
    TokenizerChoice,
    WordStatistics,
    absolute_paths,
    choose_normalization,
    choose_tokenizer,
    count_words,
    held_out_settings,
    layout_lines,
    pair_columns,
    power_of_two,
    quoted,
    read_head,
    remarks,
    render_recipe,
    rounded,
    sample_evenly,
    training_length,
)
from s2s.tasks.translation.recipe import DataSettings

if TYPE_CHECKING:
    import datasets

# Metric that selects the best checkpoint for data with one correct answer.
METRIC_OF_RULES = "exact"

_MEASURED = 50_000
_LONGEST = 2048
# Largest ratio of target to source length with which the length of the target is said to follow from the source.
_STEEP = 20
# If the usual filters drop a larger share of natural text, they do not suit the text.
_FILTERED = 0.01
# Most pairs of natural text that an LSTM learns from better than a Transformer.
_SMALL = 10_000


def generate_translation_recipe(
    name: str, splits: Splits[Files], source: str | None = None, target: str | None = None
) -> str:
    """Return a translation recipe with sizes chosen from the data.

    Data with few different words, or with single words, is taken for rule-based data with one correct answer: tokens
    are words or letters, and nothing is filtered. Natural text gets a vocabulary as large as the text supports; small
    corpora get small vocabularies, narrow models and much dropout (Sennrich & Zhang 2019, "Revisiting low-resource
    neural machine translation").

    Args:
        name: Name of the recipe and its run.
        source: Column of the sources; None finds it by name or position.
        target: Column of the targets; None finds it by name or position.

    Returns:
        The recipe as YAML.

    Raises:
        UserError: A file or column is missing, files do not fit each other, or there is too little data.
    """
    columns, layout, quoting = _columns(splits.train, source, target)
    settings = DataSettings(
        corpus="files",
        source=columns[0],
        target=columns[1],
        quoting=quoting,
        train=absolute_paths(splits.train),
        validation=1,
        test=None,
    )
    everything = load_split(settings, "train")
    different = len({one for one, _ in pairs(everything)}) if everything else 0
    first = splits.train if isinstance(splits.train, Path) else splits.train[0]
    held = held_out_settings(splits, different, "sources", first)
    corpus = load(settings.model_copy(update=held))
    choices = _chosen(corpus)
    target_column = quoted(columns[1]) + remarks(suspicious_text_lines(pairs(corpus.train), "pairs"))
    said = {"source": quoted(columns[0]), "target": target_column, "header": layout}
    return render_recipe("translation", name, splits.train, held, said | choices)


def _columns(train: Files, source: str | None, target: str | None) -> tuple[tuple[str, str], str, Quoting | None]:
    if not isinstance(train, Path):
        return (source or _ending(train[0]), target or _ending(train[1])), "", None
    head = read_head(train, [name for name in (source, target) if name])
    return (
        pair_columns(head, source, target),
        layout_lines(head, "pair"),
        head.quoting,
    )


def _ending(path: Path) -> str:
    """Return the language suffix: `en` for `a.en` and `a.en.gz`."""
    name = Path(path.stem) if path.suffix in (".gz", ".xz") else path
    return name.suffix.removeprefix(".") or name.name


@dataclass(frozen=True)
class _Measured:
    """Statistics of the training pairs, and a tokenizer that fits them.

    Attributes:
        sides: Words of the sources and of the targets.
        lengths: Number of tokens of sources and targets, `(2, pairs)`, held-out pairs last.
        pieces: Target tokens of all training pairs that are not too long, ends included.
        ruled: True for data with one right answer.
        max_length: Most tokens of a side.
        why_length: Reason of `max_length`.
    """

    train: "datasets.Dataset"
    sides: list[WordStatistics]
    normalization: str
    why_normalization: str
    tokens: TokenizerChoice
    lengths: Int[np.ndarray, "2 pairs"]
    pieces: int
    ruled: bool
    max_length: int
    why_length: str


def _measure(train: "datasets.Dataset", others: Sequence["datasets.Dataset"]) -> _Measured:
    sides = [count_words(_texts(side, [train]), _texts(side, others)) for side in (0, 1)]
    normalization, why = choose_normalization(_texts(1, [train, *others]))
    measured = sample_evenly(train, _MEASURED)
    texts = [text for pair in pairs(measured) for text in pair]
    # 1,000 pieces for 10,000 words, 2,000 for 60,000, 4,000 for 110,000 (docs/dev/log.md); 8,000 for Multi30k
    most = 13 * sum(side.words for side in sides) ** 0.5
    tokens = choose_tokenizer(texts, sides, normalization, most=most)
    lengths = np.concatenate([_lengths(part, tokens.tokenizer) for part in (measured, *others)], axis=1)
    # Natural text that is too little for subwords is spelt, too, but has no rules.
    ruled = not any(side.sentences for side in sides) and (
        all(side.closed for side in sides) or any(side.spelt for side in sides)
    )
    max_length, why_length = _max_length(lengths, ruled)
    fits = lengths.max(axis=0) < max_length
    targets = lengths[1, fits] if fits.any() else lengths[1]
    pieces = round(float(targets.mean() + 1) * len(train))
    return _Measured(train, sides, normalization, why, tokens, lengths, pieces, ruled, max_length, why_length)


def _chosen(corpus: Corpus["datasets.Dataset"]) -> dict[str, object]:
    others = [part for part in (corpus.validation, corpus.test) if part is not None]
    # Pairs that the filters drop say nothing about the pairs that are learned from.
    filters, rules = _filters(corpus.train)
    found = _measure(_passing(corpus.train, rules), [_passing(part, rules) for part in others])
    if found.ruled:
        # What is unequal is right here. A few endless lines are not, and `max_length` leaves them out.
        filters, rules = _NO_FILTERS, rules.model_copy(update={"max_ratio": None})
        found = _measure(_passing(corpus.train, rules), [_passing(part, rules) for part in others])
    sizes = (_rule_sizes if found.ruled else _text_sizes)(len(found.train), found.pieces)
    if found.sides[1].sentences:
        sizes["metric"] = "chrf # characters: the target has no spaces between words"
    sizes["tokens"] = max(sizes["tokens"], power_of_two(4 * found.max_length, 256, 8192))
    return {
        "pairs": len(corpus.train),
        **filters,
        "kind": found.tokens.kind,
        "size": found.tokens.size,
        "why_kind": found.tokens.why,
        "normalization": found.normalization,
        "why_normalization": found.why_normalization,
        "target_pieces": found.pieces,
        "batches": max(1, round(found.pieces / sizes["tokens"])),
        **training_length(sizes["updates"], sizes["tokens"], max(found.pieces, sizes["tokens"])),
        "max_length": found.max_length,
        "why_length": found.why_length,
        "sentences": min(500, len(corpus.validation)),
        **_output(found.lengths, found.ruled),
        **sizes,
    }


def _texts(side: int, parts: Sequence["datasets.Dataset"]) -> Iterator[str]:
    return (pair[side] for part in parts for pair in pairs(part))


def _lengths(part: "datasets.Dataset", tokenizer: Tokenizer) -> Int[np.ndarray, "2 pairs"]:
    """Return the number of tokens of each source and target, without special tokens.

    Pairs with an empty side are left out.
    """
    encoded = [tokenizer.encode_batch(list(_texts(side, [part]))) for side in (0, 1)]
    lengths = np.array([[len(tokens) for tokens in side] for side in encoded], dtype=np.int64)
    return lengths[:, (lengths > 0).all(0)]


_NO_FILTERS = {"max_words": "null # data with rules: what is unequal is right, too", "max_ratio": "null"}


def _filters(train: "datasets.Dataset") -> tuple[dict[str, object], FilterSettings]:
    """Return the usual filters that drop little, as values for the template and as settings."""
    usual = FilterSettings()
    broken = Counter(broken_rule(one, other, usual) for one, other in pairs(train))
    choices: dict[str, object] = {}
    unused: dict[str, None] = {}
    for key in ("max_words", "max_ratio"):
        count, value = broken[f"over {key}"], getattr(usual, key)
        if count > _FILTERED * len(train):
            choices[key], unused[key] = f"null # {value} would drop {count:,}", None
        else:
            choices[key] = f"{value} # drops {count:,} training pairs: see `s2s data check`" if count else f"{value}"
    return choices, usual.model_copy(update=unused)


def _passing(part: "datasets.Dataset", rules: FilterSettings) -> "datasets.Dataset":
    kept = [row for row, (one, other) in enumerate(pairs(part)) if broken_rule(one, other, rules) is None]
    return part if len(kept) in (0, len(part)) else part.select(kept)


def _rule_sizes(examples: int, pieces: int) -> dict[str, Any]:
    """Return sizes for rule-based data: a small LSTM with attention.

    An LSTM learns rules from few examples. A Transformer of the same width is far behind after as many steps, on
    spelling, repetition, reversal and composition of words (docs/dev/log.md; benchmarks/rules.py makes such data).
    """
    tokens = power_of_two(pieces / 100, 256, 1024)
    return {
        "tokens": tokens,
        "model": "lstm-attention # learns rules from fewer examples than a Transformer",
        "width": 64 if examples < 1_000 else 128,
        "heads": "  scale_embeddings: true # few pieces, and all of them frequent\n",
        "layers": 1,
        "dropout": 0.1,
        "why_dropout": "rules: little to learn by heart",
        "updates": rounded(20 * pieces / tokens, 1_000, 4_000),
        "rate": 0.004,
        "smoothing": "0.0 # there is one right answer",
        "ema": 0.99,
        "metric": f"{METRIC_OF_RULES} # BLEU says little where one wrong word is all wrong",
        "beam": "1 # one right answer",
    }


def _text_sizes(examples: int, pieces: int) -> dict[str, Any]:
    """Return sizes for natural text.

    Larger corpora get larger models, fewer epochs and less dropout. A small one gets an LSTM with attention, which
    learns more from few sentences than a Transformer, in less time (docs/dev/log.md).
    """
    large, middling, small = examples > 300_000, examples > 50_000, examples <= _SMALL
    width = 512 if large else 256 if examples > 100_000 else 128
    tokens = 4096 if examples > 10_000 else 2048 if examples > 2_000 else 1024
    passes = 15 if large else 30 if middling else 60
    return {
        "tokens": tokens,
        "model": "lstm-attention # learns more from few sentences than a Transformer" if small else "transformer",
        "width": width,
        "heads": "" if small else f"  heads: 4\n  feedforward: {4 * width}\n",
        "layers": 1 if small else 6 if large else 3,
        "dropout": 0.1 if large else 0.3,
        "why_dropout": "the smaller the corpus, the more",
        "updates": rounded(passes * pieces / tokens, 1_000, 100_000),
        "rate": 0.001 if width > 128 else 0.004,
        "smoothing": 0.1,
        "ema": 0.999,
        "metric": "bleu",
        "beam": 5,
    }


def _max_length(lengths: Int[np.ndarray, "2 pairs"], ruled: bool) -> tuple[int, str]:
    """Return a maximum length that fits all pairs, except the longest of natural text."""
    longest = lengths.max(axis=0) + 1
    wanted = int(longest.max()) if ruled or longest.max() <= 256 else int(np.quantile(longest, 0.999, method="lower"))
    limit = min(max(32, power_of_two(wanted - 1, 16, _LONGEST // 2) * 2), _LONGEST)
    over = int((longest > limit).sum())
    return limit, f"the longest side has {longest.max():,} pieces" + (
        f"; {over:,} of {len(longest):,} pairs are longer" if over else ""
    )


def _output(lengths: Int[np.ndarray, "2 pairs"], ruled: bool) -> dict[str, object]:
    """Return the largest target length as a ratio to the source length, or as an addition where that would be steep."""
    usual = DecodingSettings()
    ratios = (lengths[1] + 1 - usual.max_extra) / lengths[0]
    needed = float(ratios.max() if ruled else np.quantile(ratios, 0.999))
    ratio, extra = usual.max_ratio if needed <= usual.max_ratio else math.ceil(1.2 * needed), usual.max_extra
    if ratio > _STEEP:
        # The length of the target does not follow from that of the source.
        beyond = lengths[1] + 1 - usual.max_ratio * lengths[0]
        longest = 1.2 * float(beyond.max() if ruled else np.quantile(beyond, 0.999))
        ratio, extra = usual.max_ratio, min(math.ceil(longest), _LONGEST)
    row = int(np.argmax(ratios))
    return {
        "longest_output": ratio,
        "why_output": f"up to {lengths[1][row]:,} pieces are written for {lengths[0][row]:,}",
        "extra": "" if extra == usual.max_extra else f"\n  max_extra: {extra}",
    }
