"""Measure translations of one to six sentences at a time, by the models of `quality`."""

from dataclasses import asdict, dataclass
from functools import partial

import numpy as np
from pydantic import TypeAdapter

from s2s.comparison.questions.bottleneck.analyse import JOINED, BottleneckRun, Translations, analyse
from s2s.comparison.runs import learning_curve, prepared
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial, each_run
from s2s.comparison.tasks import trained
from s2s.comparison.translation import counts_of, greedy, joined_texts, some_pairs
from s2s.data.scripts import is_unspaced, sentence_separator, split_words
from s2s.models.base import Seq2Seq
from s2s.run.inference import load
from s2s.tasks.translation.recipe import Recipe


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurement."""

    texts: int  # least number of texts of each number of sentences
    words: int  # largest mean length of the longest texts


SIZES: dict[Scale, Sizes] = {
    "quick": Sizes(texts=10, words=60),
    "lecture": Sizes(texts=300, words=60),
    "definitive": Sizes(texts=300, words=60),
}


def measure(comparison: Comparison, trial: Trial) -> BottleneckRun:
    """Translate texts of one sentence, of two, and so on, and count BLEU's statistics of each text."""
    sizes, candidate = comparison.sizes(SIZES), comparison.candidate(trial.model)
    folder = trained(comparison, trial.model, trial.seed)
    data, model = prepared(candidate.translation), load(folder).narrow(Recipe, Seq2Seq).model
    sources, references = some_pairs(data, len(data.corpus.test or data.corpus.validation))
    unspaced = is_unspaced(sources)
    separators = sentence_separator(sources), sentence_separator(references)
    mean = float(np.mean([len(split_words(source, unspaced)) for source in sources]))
    longest = model.encoder.max_positions
    parts = []
    for sentences in range(1, max(1, min(round(sizes.words / mean), len(sources))) + 1):
        rows = joined_texts(len(sources), sentences, sizes.texts)
        texts, wanted = (
            [separator.join(side[row] for row in text) for text in rows]
            for separator, side in zip(separators, (sources, references), strict=True)
        )
        # texts that are too long for the model stay untranslated
        tokens = data.source_tokenizer.encode_batch(texts)
        read = [i for i, row in enumerate(tokens) if longest is None or len(row) < longest]
        written = [""] * len(texts)
        for i, text in zip(read, greedy(model, data, candidate.translation, [texts[i] for i in read]), strict=True):
            written[i] = text
        parts.append(
            Translations(
                rows=rows,
                words=[len(split_words(text, unspaced)) for text in texts],
                translations=written,
                counts=counts_of("bleu", written, wanted, data.target_tokenizer.writes_lowercase),
                exact=[int(a.strip() == b.strip()) for a, b in zip(written, wanted, strict=True)],
                unread=len(texts) - len(read),
            )
        )
    return BottleneckRun(
        **asdict(learning_curve(folder, comparison.device_context)),
        rate=candidate.choice(),
        parts=parts,
        learned=max(len(split_words(source, unspaced)) for source in data.corpus.train["source"]),
    )


EXPERIMENT = Experiment(
    "bottleneck",
    "Does it keep its quality on texts longer than it was trained on?",
    partial(each_run, part=JOINED),
    measure,
    analyse,
    TypeAdapter(BottleneckRun),
    depends_on="quality",
)
