"""Short trainings of recurrent translators on the built-in corpus, for findings about sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np

from s2s.comparison.matching import settings_of
from s2s.comparison.reporting import axis, figure, series
from s2s.comparison.results import Figure
from s2s.comparison.runs import prepared
from s2s.comparison.spec import Trial
from s2s.comparison.translation import built_in, corpus_score, counts_of, greedy, train_briefly
from s2s.data.tokenized import TokenizedDataset
from s2s.models.base import Seq2Seq
from s2s.tasks.seq2seq import mean_loss
from s2s.tasks.translation.prepared import PreparedTranslation
from s2s.tasks.translation.recipe import BatchSettings, Recipe
from s2s.training.device import select_device


@dataclass(frozen=True)
class Quality:
    """Perplexity and BLEU of one translator."""

    perplexity: float
    bleu: float


@dataclass(frozen=True)
class Translators:
    """Recurrent translators with one encoder and one decoder layer; fields are sizes."""

    width: int = 256
    train: int = 20_000
    words: float = 0.2  # share of the grammar's vocabulary that is used
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

    def train_model(self, trial: Trial, train_pairs: TokenizedDataset | None = None) -> Seq2Seq:
        """Train a trial's model on the corpus, or on other pairs."""
        recipe = self.recipe(trial)
        device_context = select_device(recipe.device)
        return train_briefly(recipe, prepared(recipe), trial.seed or 0, device_context, train_pairs).model.eval()

    def quality(self, trial: Trial) -> Quality:
        """Train a trial's model; return its perplexity on the validation pairs and its BLEU of single sentences."""
        recipe = self.recipe(trial)
        data = prepared(recipe)
        model = self.train_model(trial)
        loss = mean_loss(model, data.validation, recipe.batches, select_device(recipe.device))
        return Quality(math.exp(loss), self.bleu(model, data, trial, 1)[1])

    def bleu(self, model: Seq2Seq, data: PreparedTranslation, trial: Trial, joined: int) -> tuple[float, float]:
        """Return the mean number of words and the greedy BLEU of test texts of `joined` sentences."""
        sources, references = (side[: self.tested] for side in join_sentences(data.corpus.test, joined))
        counts = counts_of("bleu", greedy(model, data, self.recipe(trial), sources), references)
        return float(np.mean([len(source.split()) for source in sources])), corpus_score("bleu", np.array(counts))


def perplexity_figure(measured: Mapping[Trial, Quality], varied: str, parts: Sequence[str]) -> Figure:
    """Draw the perplexity of each seed.

    Args:
        measured: Quality of each trial.
        varied: Name of the setting that differs between the parts.
        parts: Parts of the trials, in the order of the bars.
    """
    shown = []
    for part in parts:
        own = {f"seed {trial.seed}": run.perplexity for trial, run in measured.items() if trial.part == part}
        shown += [series(part, part, list(own), list(own.values()))] if own else []
    axes = (axis("seed"), axis("perplexity"))
    return figure("perplexity", f"Perplexity by {varied}", axes, shown, kind="bars")


def join_sentences(corpus: datasets.Dataset | None, count: int) -> tuple[list[str], list[str]]:
    """Join each `count` consecutive sentences to one text; return sources and targets."""
    if corpus is None:
        raise ValueError("the corpus has no test set")
    starts = range(0, len(corpus) - count + 1, count)
    sources, targets = (
        [" ".join(side[i : i + count]) for i in starts] for side in (list(corpus["source"]), list(corpus["target"]))
    )
    return sources, targets
