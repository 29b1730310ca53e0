"""Translators without attention: quality by sentence length, and reversed sources."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import datasets
import numpy as np

from s2s.comparison.matching import settings_of
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, pairs
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.runs import prepared
from s2s.comparison.spec import Measured, Trial, Trials
from s2s.comparison.translation import built_in, corpus_score, counts_of, greedy, train_briefly
from s2s.data.tokenized import TokenizedDataset, encode_corpus
from s2s.models.base import Seq2Seq
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import BatchSettings, Recipe
from s2s.tasks.translation.task import mean_loss
from s2s.training.device import select_device


@dataclass(frozen=True)
class _Translators(Reproduction):
    """Recurrent translators of one layer a side on the built-in corpus; fields are sizes."""

    width: int = 256
    train: int = 20_000
    words: float = 0.2  # share of the grammar's words that occur
    updates: int = 8_000
    tokens: int = 1_024
    rate: float = 0.002
    tested: int = 100

    def options(self, trial: Trial) -> dict[str, object]:
        """Return settings of a trial's model; a model ignores settings that it does not have."""
        layers = {"encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0, "scale_embeddings": True}
        return {"width": self.width, **layers}

    def recipe(self, trial: Trial) -> Recipe[Any]:
        """Return the recipe of a trial."""
        return built_in(
            settings_of(trial.model, self.options(trial)),
            {"words": self.words, "train": self.train, "validation": 300, "test": 6 * self.tested},
            {"updates": self.updates, "learning_rate": self.rate, "warmup": self.updates // 10},
            BatchSettings(tokens=self.tokens, max_length=256),
        )

    def _train(self, recipe: Recipe[Any], trial: Trial, train_pairs: TokenizedDataset | None = None) -> Seq2Seq:
        device_context = select_device(recipe.device)
        return train_briefly(recipe, prepared(recipe), trial.seed or 0, device_context, train_pairs).model.eval()

    def _bleu(self, model: Seq2Seq, data: PreparedTranslation, recipe: Recipe[Any], joined: int) -> tuple[float, float]:
        """Mean number of words and greedy BLEU of test texts of `joined` sentences."""
        sources, references = (side[: self.tested] for side in join_sentences(data.corpus.test, joined))
        counts = counts_of("bleu", greedy(model, data, recipe, sources), references)
        return float(np.mean([len(source.split()) for source in sources])), corpus_score("bleu", np.array(counts))


def join_sentences(corpus: datasets.Dataset | None, count: int) -> tuple[list[str], list[str]]:
    """Join each `count` consecutive sentences to one text; return sources and targets."""
    if corpus is None:
        raise ValueError("the corpus has no test set")
    starts = range(0, len(corpus) - count + 1, count)
    sources, targets = (
        [" ".join(side[i : i + count]) for i in starts] for side in (list(corpus["source"]), list(corpus["target"]))
    )
    return sources, targets


@dataclass(frozen=True)
class Length(_Translators):
    """Translators with and without attention, trained on one to three joined sentences and tested on one to five."""

    name = "length"
    finding = "A translator that squeezes its source into one vector loses with length; one with attention does not."
    source = (
        "Bahdanau, Cho & Bengio 2015, figure 2: the BLEU of RNNenc falls with the length of the source, that of "
        "RNNsearch-50 does not up to 60 words; table 1: RNNenc-50 17.8, RNNsearch-50 26.8 (numbers and the figure's "
        "course are from memory, not verified)"
    )
    method = (
        "LSTMs of one layer and width 256, the encoder in both directions, English to German on the built-in corpus "
        "with a fifth of its words; 20,000 sentences, learned one, two and three at a time (joined), 8,000 updates "
        "of 1,024 tokens at a rate of 0.002. Greedy BLEU of 100 texts each of one to five sentences. What is left at "
        "three sentences, the longest that was learned, is given as a share of the BLEU of one; four and five are "
        "drawn but decide nothing. With width 128 the LSTM without attention had a BLEU of 12.8 to 13.8 at one "
        "sentence, also after three times as long, and so little to lose."
    )
    bands = (
        Band(key="learned", what="BLEU of the LSTM without attention, one sentence", published="(gate)", low=25.0),
        Band(
            key="attention",
            what="share that the LSTM with attention keeps at three sentences",
            published="about 1",
            low=0.85,
        ),
        Band(
            key="more",
            what="how much more of its BLEU it keeps than the LSTM without (share)",
            published="above 0; from figure 2 about a half at 50 words",
            low=0.1,
        ),
    )
    seconds = (1_200, 2_600)
    usual_seeds = 1

    learned: int = 3
    longest: int = 5
    kinds: ClassVar[tuple[str, ...]] = ("lstm", "lstm-attention")

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(kind, seed=seed) for seed in seeds for kind in self.kinds]

    def measure(self, trial: Trial) -> Measured:
        """BLEU and mean number of words by the number of sentences."""
        recipe = self.recipe(trial)
        data = prepared(recipe)
        texts = [join_sentences(data.corpus.train, count) for count in range(1, self.learned + 1)]
        columns = {side: [text for part in texts for text in part[i]] for i, side in enumerate(("source", "target"))}
        train = encode_corpus(datasets.Dataset.from_dict(columns), data.source_tokenizer, data.target_tokenizer)
        model = self._train(recipe, trial, train)
        words, bleu = zip(*(self._bleu(model, data, recipe, n) for n in range(1, self.longest + 1)), strict=True)
        kept = bleu[self.learned - 1] / max(bleu[0], 1e-9)
        return {"words": list(words), "bleu": list(bleu), "kept": kept, "short": bleu[0]}

    def numbers(self, measured: Trials) -> Numbers:
        plain, attentive = ((kind, "") for kind in self.kinds)
        return {
            "learned": by_seed(measured, "short", *plain),
            "attention": by_seed(measured, "kept", *attentive),
            "more": [other - one for one, other in pairs(measured, "kept", plain, attentive)],
        }

    def figures(self, measured: Trials) -> list[Figure]:
        shown = [series(f"{t.model}, seed {t.seed}", t.model, run["words"], run["bleu"]) for t, run in measured.items()]
        title = f"BLEU of one to {self.longest} sentences at once; learned up to {self.learned}"
        return [figure("bleu", title, (axis("words of the source"), axis("BLEU")), shown)]


@dataclass(frozen=True)
class ReverseSource(_Translators):
    """The same translator, trained to read its source forward or reversed."""

    name = "reverse-source"
    finding = "An LSTM without attention translates better when it reads its source from the end to the beginning."
    source = (
        "Sutskever, Vinyals & Le 2014, section 3.3: perplexity 5.8 falls to 4.7, BLEU rises from 25.9 to 30.6 (that "
        "reversed sources are markedly better is in the abstract; the numbers are not verified)"
    )
    method = (
        "LSTMs of one layer and width 256 that read in one direction, English to German on the built-in corpus with "
        "a fifth of its words, 20,000 sentences, 6,000 updates of 1,024 tokens at a rate of 0.002; perplexity on 300 "
        "sentences, greedy BLEU of 300. With width 128 the gate was missed at 17.2 BLEU (ratio 1.00, gain 0.9). "
        "Width and rate are the best of four that were then tried with half of the updates, reading forward: 4.9 BLEU "
        "with width 128, 1.1 to 15.8 with 256."
    )
    bands = (
        Band(
            key="perplexity", what="perplexity reversed over perplexity as it is", published="0.81 (4.7/5.8)", high=0.95
        ),
        Band(key="bleu", what="BLEU reversed minus BLEU as it is", published="+4.7", low=1.0),
        Band(key="learned", what="BLEU reversed", published="30.6 (gate)", low=20.0),
    )
    seconds = (1_600, 3_500)
    usual_seeds = 2

    updates: int = 6_000
    tested: int = 300
    orders: ClassVar[tuple[tuple[str, str], ...]] = (("lstm", "forward"), ("lstm", "reversed"))

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        return [Trial(*order, seed) for seed in seeds for order in self.orders]

    def measure(self, trial: Trial) -> Measured:
        """Perplexity and BLEU."""
        recipe = self.recipe(trial)
        data = prepared(recipe)
        model = self._train(recipe, trial)
        loss = mean_loss(model, data.validation, recipe.batches, select_device(recipe.device))
        return {"perplexity": math.exp(loss), "bleu": self._bleu(model, data, recipe, 1)[1]}

    def options(self, trial: Trial) -> dict[str, object]:
        return super().options(trial) | {"bidirectional": False, "reverse_source": trial.part == "reversed"}

    def numbers(self, measured: Trials) -> Numbers:
        return {
            "perplexity": [other / one for one, other in pairs(measured, "perplexity", *self.orders)],
            "bleu": [other - one for one, other in pairs(measured, "bleu", *self.orders)],
            "learned": by_seed(measured, "bleu", *self.orders[1]),
        }

    def figures(self, measured: Trials) -> list[Figure]:
        shown = []
        for _, order in self.orders:
            own = {f"seed {trial.seed}": run["perplexity"] for trial, run in measured.items() if trial.part == order}
            shown += [series(order, order, list(own), list(own.values()))] if own else []
        axes = (axis("seed"), axis("perplexity"))
        return [figure("perplexity", "Perplexity by the order of reading", axes, shown, kind="bars")]
