"""Measure translations of one to six sentences at a time, by the models of `quality`."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from s2s.comparison.questions.bottleneck.analyse import JOINED, analyse
from s2s.comparison.runs import history, prepared
from s2s.comparison.spec import Comparison, Experiment, Measured, Scale, Trial, each_run
from s2s.comparison.tasks import trained
from s2s.comparison.translation import counts_of, greedy, joined_texts, some_pairs
from s2s.data.scripts import is_unspaced, sentence_separator, split_words
from s2s.models.base import Seq2Seq
from s2s.run.inference import load
from s2s.tasks.translation.recipe import Recipe


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    texts: int  # of each number of sentences, at least
    words: int  # that the longest texts have on average, at most


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(texts=10, words=60),
    "lecture": Sizes(texts=300, words=60),
    "definitive": Sizes(texts=300, words=60),
}


def measure(comparison: Comparison, trial: Trial) -> Measured:
    """Count BLEU statistics of each text, by the number of its sentences."""
    sizes, candidate = comparison.sizes(SIZES), comparison.candidate(trial.model)
    recipe = candidate.translation
    folder = trained(comparison, trial.model, trial.seed)
    data, model = prepared(recipe), load(folder).narrow(Recipe, Seq2Seq).model
    sources, references = some_pairs(data, len(data.corpus.test or data.corpus.validation))
    unspaced = is_unspaced(sources)
    separators = sentence_separator(sources), sentence_separator(references)
    mean = float(np.mean([len(split_words(source, unspaced)) for source in sources]))
    learned = [len(split_words(source, unspaced)) for source in data.corpus.train["source"]]
    most = max(1, min(round(sizes.words / mean), len(sources)))
    longest = model.encoder.max_positions
    parts = []
    for together in range(1, most + 1):
        rows = joined_texts(len(sources), together, sizes.texts)
        texts, wanted = (
            [separator.join(side[row] for row in text) for text in rows]
            for separator, side in zip(separators, (sources, references), strict=True)
        )
        # what a model has no positions for stays untranslated
        pieces = data.source_tokenizer.encode_batch(texts)
        read = [i for i, row in enumerate(pieces) if longest is None or len(row) < longest]
        written = [""] * len(texts)
        for i, text in zip(read, greedy(model, data, recipe, [texts[i] for i in read]), strict=True):
            written[i] = text
        exact = [int(a.strip() == b.strip()) for a, b in zip(written, wanted, strict=True)]
        words = [len(split_words(text, unspaced)) for text in texts]
        parts.append(
            {
                "rows": rows,
                "words": words,
                "translations": written,
                "counts": counts_of("bleu", written, wanted, data.target_tokenizer.writes_lowercase),
            }
            | {"exact": exact, "unread": len(texts) - len(read)}
        )
    curve = history(folder, {"losses": "loss"}, comparison.device_context)
    return {"parts": parts, "learned": max(learned), "rate": candidate.choice(), **curve}


EXPERIMENT = Experiment(
    "bottleneck",
    "Does quality fall with the length of the source?",
    partial(each_run, part=JOINED),
    measure,
    analyse,
    depends_on="quality",
)
