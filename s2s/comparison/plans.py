"""The questions of each task (rows of its table), and the questions that each profile can answer."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

Task = Literal["translation", "classification"]
Profile = Literal["quick", "lecture", "definitive"]


class Row(NamedTuple):
    """A row of a table."""

    asks: str
    """Question about a model."""
    experiment: str
    """Name of the question that fills the row."""
    good: Literal["high", "low", ""] = ""
    """Which values are good; empty if neither."""
    literature: str = ""
    """Published findings with their sources; empty if there are none."""
    key: bool = False
    """True if the row's figure is shown with the table at the top of the report."""
    without: str = "no value"
    """Text of a cell that was measured but has no value."""


# Rows by name, in the order of the table.
Rows = dict[str, Row]

# The classroom table.
ROWS: Rows = {
    "sequential steps": Row(
        "How long is the longest chain of dependent operations?",
        "parallelism",
        "low",
        "O(n) in a recurrence, O(1) in self-attention (Vaswani et al. 2017, table 1), O(log n) in a scan (Martin and "
        "Cundy 2018).",
        key=True,
    ),
    "parallel computation": Row(
        "How much of its work can run in parallel?",
        "parallelism",
        "",
        "On p processors, a computation takes at most its work divided by p plus its longest chain (Brent 1974).",
    ),
    "training speed": Row(
        "How many tokens per second does it train on?",
        "parallelism",
        "high",
        "Self-attention needs fewer operations per layer than recurrence if the length n is below the width d: n²·d "
        "against n·d² (Vaswani et al. 2017, table 1).",
    ),
    "memory": Row(
        "How does peak memory grow with length?",
        "memory",
        "low",
        "Attention needs memory ~ n² if its weights are stored, ~ n if computed block by block (Dao et al. 2022).",
        key=True,
    ),
    "long-term dependencies": Row(
        "Over what distance does it recall?",
        "long-range",
        "high",
        "An LSTM bridged more than 1,000 steps (Hochreiter and Schmidhuber 1997).",
    ),
    "learning long-term dependencies": Row(
        "How soon does it learn long dependencies?",
        "long-range",
        "low",
        "The longer a dependency, the harder it is to learn by gradient descent (Bengio et al. 1994).",
        key=True,
    ),
    "copying": Row(
        "How long a string can it copy?",
        "copying",
        "high",
        "A state of fixed size cannot copy long strings; two layers of attention can (Jelassi et al. 2024).",
        key=True,
    ),
    "associative recall": Row(
        "How many pairs can it recall?",
        "associative-recall",
        "high",
        "Attention recalls at any width; a state of fixed size must be wide (Arora et al. 2023).",
        key=True,
    ),
    "state tracking": Row(
        "How long can it track a changing state?",
        "state-tracking",
        "high",
        "Recurrent networks learn parity and cycles at any length, Transformers do not (Delétang et al. 2023).",
        key=True,
    ),
    "vanishing and exploding gradients": Row(
        "By what factor does a gradient change per step?",
        "gradients",
        "",
        "In a tanh recurrence, gradients vanish if the largest singular value of the matrix is below 1, and explode "
        "only if it is above (Pascanu et al. 2013).",
        key=True,
        without="no factor",
    ),
    "initialisation": Row(
        "How soon does it learn if its initialisation preserves gradients?",
        "initialization",
        "low",
        "An LSTM whose forget gate is open at initialisation learns long dependencies sooner (Gers et al. 2000; "
        "Jozefowicz et al. 2015).",
    ),
    "bits between encoder and decoder": Row(
        "How many bits pass from encoder to decoder?",
        "capacity",
        "high",
        "A recurrent network stores about one number of its input per hidden unit (Collins et al. 2017).",
    ),
    "text longer than trained on": Row(
        "Does it keep its quality on texts longer than it was trained on?",
        "bottleneck",
        "high",
        "It falls if one vector encodes the sentence (Cho et al. 2014), but not with attention, even at 50 words "
        "(Bahdanau et al. 2015).",
        key=True,
    ),
    "position information": Row(
        "How much does it rely on word order?",
        "positions",
        "",
        "Learned and sinusoidal positions are equally good in a Transformer (Vaswani et al. 2017, table 3); a causal "
        "decoder learns positions without either (Haviv et al. 2022).",
    ),
    "strings longer than trained on": Row(
        "Does it generalize to strings longer than trained on?",
        "length-generalization",
        "high",
        "Relative biases extrapolate, sinusoidal and learned positions do not (Press et al. 2022; Kazemnejad et al. "
        "2023).",
        key=True,
    ),
    "translation quality": Row(
        "How good are its translations?",
        "quality",
        "high",
        "The Transformer beat recurrent and convolutional models (Vaswani et al. 2017); a recurrent one with the "
        "same techniques beat it in turn (Chen et al. 2018).",
        key=True,
    ),
    "decoding cost": Row(
        "How long does an output token take?",
        "decoding",
        "low",
        "A Transformer's decoding is limited by memory bandwidth: each token reads all keys and values again "
        "(Shazeer 2019).",
    ),
    "scalability": Row(
        "How much does size lower its loss?",
        "scaling",
        "high",
        "The loss of a Transformer language model falls with its parameters, without embeddings, to the power of "
        "−0.076 (Kaplan et al. 2020).",
    ),
    "fine-tuning": Row(
        "How low is its loss with few pairs, after pre-training?",
        "transfer",
        "low",
        "Pre-training on a large language pair gave four small ones 5.6 BLEU on average (Zoph et al. 2016).",
    ),
}


ModelGroup = Literal[
    "a recurrent network",
    "a recurrent encoder",
    "a recurrent encoder without attention",
    "a recurrent decoder",
    "a recurrent or scan encoder",
    "a Transformer",
    "a Transformer with a choice of positions",
    "the built-in Transformer",
    "a model that is not a Transformer",
    "a model with self-attention",
    "a model with attention",
    "a model with attention over the source",
    "a model without attention over the source",
]
"""Groups of models that claims are about."""


class ClaimText(NamedTuple):
    """A claim of the classroom table."""

    number: int
    """Number; it never changes and is never given to another claim."""
    sentence: str
    """Sentence of the lecture."""
    experiment: str
    """Name of the question that decides it."""
    good: Literal["high", "low", ""] = ""
    """Which numbers are good; empty if neither."""
    needs: tuple[ModelGroup, ...] = ()
    """Groups that need a model each, otherwise the claim cannot be decided."""


# Claims by name, in the order of the classroom table.
CLAIMS: dict[str, ClaimText] = {
    "waits": ClaimText(
        1,
        "In training, a recurrent network waits for each token; a Transformer does not.",
        "parallelism",
        "low",
        needs=("a recurrent network", "a Transformer"),
    ),
    "trains-faster": ClaimText(
        2,
        "A Transformer trains faster than a recurrent network.",
        "parallelism",
        "high",
        needs=("a recurrent network", "a Transformer"),
    ),
    "memory": ClaimText(
        3,
        "Attention needs memory that grows with the square of the length.",
        "memory",
        "low",
        needs=("a model with self-attention",),
    ),
    "cache": ClaimText(
        4,
        "While it writes, a Transformer's memory grows; a recurrent state does not.",
        "memory",
        "low",
        needs=("a recurrent decoder", "a Transformer"),
    ),
    "forgets": ClaimText(
        5,
        "A recurrent network forgets beyond the distances that it was trained on.",
        "long-range",
        "high",
        needs=("a recurrent encoder without attention",),
    ),
    "learns-late": ClaimText(
        6,
        "Recurrent networks learn long-term dependencies later than attention does.",
        "long-range",
        "low",
        needs=("a recurrent encoder without attention", "a model with attention"),
    ),
    "vanishes": ClaimText(
        7,
        "Gradients vanish in recurrent networks, as they are usually initialised.",
        "gradients",
        needs=("a recurrent encoder",),
    ),
    "copies": ClaimText(
        8,
        "With attention a model learns to copy longer texts than with a fixed state.",
        "copying",
        "high",
        needs=("a model with attention over the source", "a model without attention over the source"),
    ),
    "recalls": ClaimText(
        9,
        "With attention a model learns to recall more things than with a fixed state.",
        "associative-recall",
        "high",
        needs=("a model with attention over the source", "a model without attention over the source"),
    ),
    "bits": ClaimText(
        10,
        "One vector between encoder and decoder learns to convey less than attention.",
        "capacity",
        "high",
        needs=("a model with attention over the source", "a model without attention over the source"),
    ),
    "tracks": ClaimText(
        11,
        "A recurrent network learns to track a changing state; a small Transformer does not.",
        "state-tracking",
        "high",
        needs=("a recurrent encoder", "a model with self-attention"),
    ),
    "any-length": ClaimText(
        12,
        "Attention translates texts that are longer than those it was trained on.",
        "bottleneck",
        "high",
        needs=("a model with attention over the source",),
    ),
    "order": ClaimText(
        13,
        "A Transformer must be given the order of the words.",
        "positions",
        needs=("a Transformer with a choice of positions",),
    ),
    "translates-best": ClaimText(
        14,
        "The Transformer translates best.",
        "quality",
        "high",
        needs=("a Transformer", "a model that is not a Transformer"),
    ),
    "writes-cheaply": ClaimText(
        15,
        "A recurrent network writes a token at less cost.",
        "decoding",
        "low",
        needs=("a recurrent decoder", "a Transformer"),
    ),
    "scales": ClaimText(
        16,
        "A larger model gains more if it is a Transformer.",
        "scaling",
        "high",
        needs=("a Transformer", "a model that is not a Transformer"),
    ),
    "transfers": ClaimText(
        17,
        "A pre-trained Transformer learns best from few examples.",
        "transfer",
        "low",
        needs=("a Transformer", "a model that is not a Transformer"),
    ),
    "late-by-gradients": ClaimText(
        18,
        "Recurrent networks learn sooner if their initialisation keeps gradients.",
        "initialization",
        "low",
        needs=("a recurrent or scan encoder",),
    ),
    "generalizes": ClaimText(
        19,
        "A Transformer with sinusoidal positions copies longer strings than it was trained on.",
        "length-generalization",
        "high",
        needs=("the built-in Transformer",),
    ),
    "reaches-farther": ClaimText(
        20,
        "T5's relative biases let a Transformer translate longer texts than sinusoidal positions.",
        "positions",
        "high",
        needs=("a Transformer with a choice of positions",),
    ),
}


# Table of each task that models are compared on.
TABLES: dict[Task, Rows] = {
    "translation": ROWS,
    "classification": {
        "accuracy": Row(
            "How many texts does it classify correctly?",
            "classification",
            "high",
            "A linear model of words and bigrams is often as accurate as deep ones (Joulin et al. 2017).",
            key=True,
        ),
        "accuracy of long texts": Row("Does accuracy fall with text length?", "text-length", "high", key=True),
        "calibration": Row(
            "Does its confidence match its accuracy?",
            "classification",
            "low",
            "Modern networks are overconfident (Guo et al. 2017).",
            key=True,
        ),
        "training speed": Row("How many tokens per second does it train on?", "classification", "high"),
        "training cost": Row("How much CPU time does a whole run take?", "classification", "low"),
    },
}


def experiments_of(task: Task) -> tuple[str, ...]:
    """Return the questions that fill a task's table, in the order of the table."""
    return tuple(dict.fromkeys(row.experiment for row in TABLES[task].values()))


@dataclass(frozen=True)
class Plan:
    """Questions and number of seeds of a profile.

    Attributes:
        recipe: Name of the recipe of the task; empty if the command names it.
        seeds: Number of repetitions.
        experiments: Questions that the profile can answer.
        why: Reason why it cannot answer the others.
    """

    recipe: str
    seeds: int
    experiments: tuple[str, ...]
    why: str = ""

    def beyond(self, experiments: Collection[str]) -> list[str]:
        """Return the questions that the profile is too small for."""
        return [name for name in experiments if name not in self.experiments]


PLANS: dict[Profile, Plan] = {
    "quick": Plan(
        "compare",
        3,
        (
            *("parallelism", "memory", "long-range", "copying", "associative-recall", "state-tracking"),
            *("gradients", "decoding"),
        ),
        "models must be trained to convergence, which takes much longer",
    ),
    "lecture": Plan(
        "compare_lecture",
        5,
        tuple(name for name in experiments_of("translation") if name != "scaling"),
        "five sizes of each model must be trained to convergence, more than once",
    ),
    "definitive": Plan("compare_multi30k", 5, experiments_of("translation")),
}
"""Plans of comparisons on translation, by the name after `--profile`, the shortest first."""


def plan_of(task: Task, profile: Profile) -> Plan:
    """Return the plan of a profile; a comparison on classification answers all questions."""
    return PLANS[profile] if task == "translation" else Plan("", 3, experiments_of(task))


def settling(experiments: Collection[str]) -> str:
    """Return the shortest profile on translation that can answer all of these questions."""
    return next(profile for profile, plan in PLANS.items() if not plan.beyond(experiments))
