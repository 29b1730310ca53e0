"""Translation quality by sentence length, with and without attention (Bahdanau et al. 2015)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import ClassVar

import datasets

from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.translators import Translators, join_sentences
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.runs import prepared
from s2s.comparison.spec import Trial
from s2s.data.tokenized import encode_corpus


@dataclass(frozen=True)
class QualityByLength:
    """BLEU of one translator by the number of sentences in a text."""

    words: list[float]  # mean number of words of the sources
    bleu: list[float]
    kept: float  # BLEU of the longest texts in training over that of single sentences
    short: float  # BLEU of single sentences


@dataclass(frozen=True)
class Length(Translators, Reproduction[QualityByLength]):
    """Translators with and without attention, trained on one to three joined sentences and tested on one to five."""

    name = "length"
    finding = "A translator with one fixed-size vector loses quality with length; one with attention does not."
    source = (
        "Bahdanau, Cho & Bengio 2015, figure 2: the BLEU of RNNenc falls with the length of the source, that of "
        "RNNsearch-50 does not up to 60 words; table 1: RNNenc-50 17.82, RNNsearch-50 26.75, RNNenc-30 13.93, "
        "RNNsearch-30 21.50. The share of BLEU kept in figure 2 is not verified"
    )
    method = (
        "LSTMs of one layer and width 256 with a bidirectional encoder, English to German on the built-in corpus with "
        "a twentieth of its words; 20,000 sentences, in texts of one, two and three, 8,000 updates of 1,024 tokens at "
        "a rate of 0.002. Greedy BLEU of 100 texts each of one to five sentences. Measured: share of BLEU kept at "
        "three sentences, the longest in training, relative to one sentence; four and five are only plotted."
    )
    bands = (
        Band(
            key="learned",
            what="BLEU of the LSTM without attention, one sentence",
            published="(validity check)",
            low=25.0,
            validity=True,
        ),
        Band(
            key="attention",
            what="share of BLEU kept at three sentences, LSTM with attention",
            published="about 1",
            low=0.85,
        ),
        Band(
            key="more",
            what="this share minus that without attention",
            published="above 0; from figure 2 about a half at 50 words",
            low=0.1,
            valid_if=("learned",),
        ),
    )
    seconds = (3_000, 7_800)

    words: float = 0.05
    learned: int = 3
    longest: int = 5
    kinds: ClassVar[tuple[str, ...]] = ("lstm", "lstm-attention")

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, seed=seed) for seed in seeds for kind in self.kinds]

    def measure(self, trial: Trial) -> QualityByLength:
        """Train a translator and measure its BLEU by the number of sentences."""
        data = prepared(self.recipe(trial))
        texts = [join_sentences(data.corpus.train, count) for count in range(1, self.learned + 1)]
        columns = {side: [text for part in texts for text in part[i]] for i, side in enumerate(("source", "target"))}
        train = encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)
        model = self.train_model(trial, train)
        words, bleu = zip(*(self.bleu(model, data, trial, n) for n in range(1, self.longest + 1)), strict=True)
        kept = bleu[self.learned - 1] / max(bleu[0], 1e-9)
        return QualityByLength(list(words), list(bleu), kept, bleu[0])

    def numbers(self, measured: Mapping[Trial, QualityByLength]) -> Numbers:
        plain, attention = (by_seed(measured, lambda m: m.kept, kind) for kind in self.kinds)
        learned = by_seed(measured, lambda m: m.short, self.kinds[0])
        return {"learned": learned, "attention": attention, "more": paired(attention, plain, sub)}

    def figures(self, measured: Mapping[Trial, QualityByLength]) -> list[Figure]:
        shown = [series(f"{t.model}, seed {t.seed}", t.model, run.words, run.bleu) for t, run in measured.items()]
        title = f"BLEU of texts of one to {self.longest} sentences; trained with up to {self.learned}"
        return [figure("bleu", title, (axis("words of the source"), axis("BLEU")), shown)]
