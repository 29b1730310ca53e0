"""A comparison of tiny models that counts its own measurements."""

from pathlib import Path

from s2s.comparison import setup
from s2s.comparison.request import Order, order
from s2s.comparison.results import Figure, Series, Verdict
from s2s.comparison.spec import Analysis, Experiment, NotForThisModel, Trial

TINY = (
    "data.train=300",
    "data.validation=20",
    "data.test=null",
    "tokenizer.size=450",
    "batches.tokens=512",
    "training.updates=8",
    "training.warmup=2",
    "device.precision=fp32",
    "device.threads=1",
)


class Asked(Experiment):
    """A question whose text is in no file."""

    def text(self, kind):
        return "By counting." if kind == "METHOD" else ""


class Counting:
    """Measures the contest itself, fails where it is told to, and remembers what it was asked."""

    def __init__(self):
        self.asked = []
        self.interrupt_at = None

    def trials(self, contest):
        return [Trial(model, "count", seed) for model in contest.models for seed in contest.seeds]

    def measure(self, contest, cell):
        if len(self.asked) == self.interrupt_at:
            raise KeyboardInterrupt
        self.asked.append(cell.key)
        if cell.model == "gru":
            raise NotForThisModel("gru cannot count")
        return {"rate": contest.candidate(cell.model).learning_rate, "seed": cell.seed}

    def conclusion(self, contest, measured):
        findings = [Verdict(row="memory", model=cell.model, value=found["rate"]) for cell, found in measured.items()]
        series = [Series(label=f.model, model=f.model, x=[1.0], y=[f.value]) for f in findings]
        return Analysis(findings[:1], [Figure(name="count", title="Counts", series=series)])


def begin(folder: Path, *words: str) -> Path:
    """Begins a comparison of what these words name in the folder, with two seeds and one experiment."""
    planned = order(Order((*words, *TINY), seeds=2, experiments=("memory",), out=folder))
    setup.create(planned.folder, planned.base, planned.summary)
    return folder
