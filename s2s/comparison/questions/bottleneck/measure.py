"""Measure translations of one to six sentences at a time, by the models of `quality`."""

from dataclasses import asdict, dataclass
from functools import partial

from pydantic import TypeAdapter

from s2s.comparison.longer_texts import translate_joined, words_of_longest
from s2s.comparison.questions.bottleneck.analyse import JOINED, BottleneckRun, analyse
from s2s.comparison.runs import learning_curve, prepared
from s2s.comparison.spec import Comparison, Experiment, Scale, Trial, each_run
from s2s.comparison.tasks import trained
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
    return BottleneckRun(
        **asdict(learning_curve(folder, comparison.device_context)),
        rate=candidate.choice(),
        parts=translate_joined(model, data, candidate.translation, sizes.texts, sizes.words),
        learned=words_of_longest(data),
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
