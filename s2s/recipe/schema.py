"""What recipes say, each key with its meaning, unit, limits and default: the sections that several tasks share.

What one task alone knows stands in its own folder, as `s2s.tasks.translation.recipe`. Keys, defaults and limits are
written nowhere else: validation, `docs/recipe.md`, completion and every run's resolved recipe are made from them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Generic, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

# each limit is the largest that research has a use for: a slip of the keyboard is told, not found by lack of memory
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e38)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e3)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]

# of a model
Width = Annotated[int, Field(gt=0, le=65_536)]
Inner = Annotated[int, Field(gt=0, le=262_144)]
Layers = Annotated[int, Field(gt=0, le=1_000)]
Length = Annotated[int, Field(gt=0, le=1_000_000)]
Epsilon = Annotated[float, Field(gt=0, le=1)]

# of data
Pieces = Annotated[int, Field(gt=0, le=1_000_000)]
Examples = Annotated[int, Field(gt=0, le=10_000_000)]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Pixels = Annotated[int, Field(gt=0, le=4_096)]

# of a training and of a search
Updates = Annotated[int, Field(gt=0, le=1_000_000_000)]
Count = Annotated[int, Field(gt=0, le=10_000)]
Beam = Annotated[int, Field(gt=0, le=1_000)]
Threads = Annotated[int, Field(gt=0, le=4_096)]

LONGEST_WORD = 4_096
Word = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD)]
# a file system takes 255 bytes, and an unfinished folder's name is longer than the run's
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LONGEST_NAME = 200
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"has {', '.join(twice)} twice; name each class once")
    return names


Classes = Annotated[tuple[Word, ...], Field(min_length=2), AfterValidator(_different)]
Split = Examples | Word | tuple[Word, Word]
Columns = Word | Annotated[tuple[Word, ...], Field(min_length=1)]
SplitOrSize = Examples | Word
BleuTokenizer = Literal["auto", "13a", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "none"]
Quoting = Literal["csv", "none"]
Pooling = Literal["mean", "first", "max", "last", "attention", "summary", "pooler"]


class Section(BaseModel):
    """A part of a recipe: strict, closed and unchangeable."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class RunSettings(Section):
    """Where a run keeps what it makes."""

    dir: Word | None = None
    """Folder of the run; `runs/<name>` when absent."""
    save_minutes: Annotated[float, Field(gt=0, le=1440)] = 10.0
    """Minutes of training that a crash may cost: so often a checkpoint is saved, whatever `validation.every` is."""


class PieceSettings(Section):
    """How text becomes pieces (sentencepiece)."""

    kind: Literal["unigram", "bpe", "char", "word", "bytes", "published"] = "unigram"
    """Model of the pieces; `bytes` needs no training and has 256, `published` comes with weights (`init_from`)."""
    size: Pieces = 8000
    """Number of pieces, the four special ones included; a limit for `char` and `word`, ignored by `bytes`."""
    byte_fallback: bool = True
    """Spell unknown characters in bytes, so that no text is unknown (unigram and bpe)."""
    normalization: Literal["identity", "nfkc"] = "nfkc"
    """`identity` keeps every character; `nfkc` applies Unicode NFKC and folds white space."""
    lowercase: bool = False
    """Lower-case all text before it is cut into pieces (what is generated is then lower-case, too)."""


class TokenizerSettings(PieceSettings):
    """How text becomes pieces (sentencepiece)."""

    shared: bool = True
    """One vocabulary for both sides, or one each; one each when `source` or `target` is given. With one each, no
    vectors are common to both sides: `model.tie` is then `target` unless it is set."""
    source: PieceSettings | None = None
    """How the source becomes pieces, such as `{kind: char}`; what is left out is as above, and all is when null."""
    target: PieceSettings | None = None
    """How the target becomes pieces; as `source`."""

    @model_validator(mode="before")
    @classmethod
    def _sides_begin_as_above(cls, given: Any) -> Any:
        sides = {side: given.get(side) for side in ("source", "target")} if isinstance(given, dict) else {}
        if not any(isinstance(section, dict) for section in sides.values()):
            return given
        above = {key: given[key] for key in PieceSettings.model_fields if key in given}
        whole = {side: above | section for side, section in sides.items() if isinstance(section, dict)}
        return {"shared": False} | given | whole

    @model_validator(mode="after")
    def _two_sections_are_two_vocabularies(self) -> Self:
        if self.shared and (self.source or self.target):
            raise ValueError("shared is true, but source and target shall be cut differently; set shared: false")
        return self

    def of(self, side: Literal["source", "target"]) -> PieceSettings:
        """How one side becomes pieces, whether it has a section of its own or not."""
        own = self.source if side == "source" else self.target
        return own or PieceSettings(**{key: getattr(self, key) for key in PieceSettings.model_fields})

    @property
    def sizes(self) -> tuple[int, int]:
        """How many pieces source and target may have."""
        return self.of("source").size, self.of("target").size


# what torch.optim has, but for those that need sparse gradients (SparseAdam) or several losses a step (LBFGS)
# fmt: off
OptimizerName = Literal[
    "adam", "adamw", "sgd", "muon", "adadelta", "adafactor", "adagrad", "adamax", "asgd", "nadam", "radam", "rmsprop",
    "rprop",
]
# fmt: on
_ADAM_LIKE = ("adam", "adamw", "muon", "nadam", "radam", "adamax")
# which optimizers read a key
_READERS = {
    "betas": _ADAM_LIKE,
    "epsilon": (*_ADAM_LIKE, "rmsprop", "adagrad", "adadelta"),
    "momentum": ("sgd", "muon", "rmsprop"),
    "nesterov": ("sgd", "muon"),
    "weight_decay": tuple(name for name in get_args(OptimizerName) if name != "rprop"),
}


class OptimizationSettings(Section):
    """The optimisation, as far as it is the same for all tasks."""

    updates: Updates = 3000
    """Number of parameter updates."""
    optimizer: OptimizerName = "adam"
    """A class of torch.optim: `adam` (Kingma & Ba 2015), `adamw` with decoupled weight decay (Loshchilov & Hutter
    2019), `sgd`, and others. `muon` (Jordan et al. 2024) moves the matrices of hidden layers, and AdamW the embeddings,
    the output layer and all vectors, both at `learning_rate` (updates are scaled as in Liu et al. 2025)."""
    learning_rate: PositiveFloat = 1e-3
    """Peak rate, reached at the end of the warm-up."""
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    """What follows the warm-up; cosine and linear end at zero after the last update."""
    warmup: Annotated[int, Field(ge=0, le=1_000_000_000)] | Share = 400
    """Updates during which the rate rises linearly from zero; a number below 1 is a share of `updates`, and the number
    of updates that it makes is what a run keeps."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of the two moment averages of `adam` and its like; for `muon`, those of its AdamW part."""
    epsilon: PositiveFloat = 1e-9
    """Guard against division by zero."""
    momentum: Probability = 0.0
    """Share of its last move that `sgd` or `rmsprop` keeps (Polyak 1964); with `muon` it is 0.95 by default, and
    `nesterov` is true."""
    nesterov: bool = False
    """Nesterov's form of momentum (Sutskever et al. 2013)."""
    weight_decay: NonNegativeFloat = 0.0
    """Decay of matrices; biases, norms and embeddings are exempt."""
    l1: NonNegativeFloat = 0.0
    """This times the sum of the absolute values is added to the loss, of the same tensors as `weight_decay`; with
    adamw it is decoupled, too: each number comes nearer to zero by this times the rate, and is zero where it was nearer
    than that."""
    clip: PositiveFloat | None = 1.0
    """Largest global gradient norm; null: no clipping."""
    ema: Share | None = None
    """Largest decay of an exponential average of the weights, which is then what validates, is kept and decodes. After
    update u the decay is min(`ema`, (1 + u) / (10 + u)): 0.999 is in force from update 8,990 on."""
    freeze: tuple[Word, ...] = ()
    """Parts of the model that stay as they are, by the names that gradient norms have, or patterns of them:
    `[encoder.embedding, encoder.layers.0, "*.bias"]`; a module's name stands for all in it."""
    noise_scale: bool = False
    """Measure the gradient noise scale, the number of items at which a gradient is as much signal as noise (McCandlish
    et al. 2018), from the micro-batches of each update; it needs two of them or more."""
    average_last: Count | None = None
    """When training ends, average the weights of this many last checkpoints and decode with the average."""

    @model_validator(mode="after")
    def _warmup_fits(self) -> "OptimizationSettings":
        if isinstance(self.warmup, float):
            # counted once, here: whatever later changes the number of updates does not bend a schedule that has begun
            object.__setattr__(self, "warmup", min(max(1, round(self.warmup * self.updates)), self.updates - 1))
        if self.warmup >= self.updates and self.schedule in ("cosine", "linear"):
            raise ValueError(
                f"warmup ({self.warmup}) must be below updates ({self.updates}) with schedule {self.schedule}; "
                "try training.warmup=0.1, a share of the updates, or name more updates where a run goes on"
            )
        return self

    @model_validator(mode="after")
    def _each_optimizer_has_its_own(self) -> "OptimizationSettings":
        if self.optimizer == "muon":
            # written down with the run, like a warm-up
            if "momentum" not in self.model_fields_set:
                object.__setattr__(self, "momentum", 0.95)
            if "nesterov" not in self.model_fields_set:
                object.__setattr__(self, "nesterov", self.momentum > 0)
        for key, readers in _READERS.items():
            # a recipe that was written down has all keys, with the defaults of those that were left out
            if self.optimizer not in readers and getattr(self, key) != type(self).model_fields[key].default:
                remedy = f"leave {key} out, or set optimizer: {readers[0]}"
                raise ValueError(f"{self.optimizer} does not read {key}; {remedy}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is a form of momentum, which is 0; set momentum: 0.9, or nesterov: false")
        return self


class PauseSettings(Section):
    """When training pauses to measure and to save, as far as it is the same for all tasks."""

    every: Updates = 500
    """Updates between two validations; each, and the last update, saves a checkpoint. See `run.save_minutes`."""
    patience: Updates | None = None
    """Early stopping: stop after this many validations without improvement; null disables it."""
    keep_best: Count = 1
    """Checkpoints kept for their score, beside the last one."""


class SearchSettings(Section):
    """How the best text is searched for."""

    beam: Beam = 5
    """Live hypotheses at each step; 1 is greedy search. A wider beam never finds a lower score than a narrower one."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Exponent α of ((5 + length) / 6)^α, by which the log probability is divided (Wu et al. 2016). Above about 1.5 the
    longest hypotheses win."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Of matrix products in the search; `bf16` may be faster for a wide model, and is less exact (docs/speed.md)."""


class DecodingSettings(SearchSettings):
    """How text is generated."""

    max_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Longest output: this times the source's pieces, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=4_096)] = 10
    """Pieces; see `max_ratio`."""
    batch: Count = 64
    """Sentences translated at once."""


class LocalText(Section):
    """Where tables read from `data.root` differ from the hub's data set."""

    text: Columns | None = None
    """As `data.text`, which counts when this is null."""


MADE = ("built-in", "homonyms")
"""Corpora that are made to measure: a number says how many examples are made, and none is held out of others."""


class SourceSettings(Section):
    """Where examples come from, as far as it is the same for all tasks."""

    corpus: Word = "files"
    """`files`, or the name of a Hugging Face data set such as `stanfordnlp/imdb` or `ylecun/mnist`."""
    config: Word | None = None
    """Configuration of the hub data set."""
    revision: Word | None = None
    """Git revision of the hub data set."""
    root: Word | None = None
    """A local folder that is read in the place of the hub."""
    seed: Seed = 1
    """Seed of the examples held out."""

    @model_validator(mode="after")
    def _what_is_made_lies_in_no_folder(self) -> Self:
        if self.root is not None and self.corpus in MADE:
            raise ValueError(
                f"root is {self.root!r}, but the corpus is {self.corpus}, which lies in no folder: corpus: files reads "
                "your own; leave out root"
            )
        return self


class TextSettings(SourceSettings):
    """Where texts come from."""

    root: Word | None = None
    """A local folder: with a hub data set, read tables of the usual names there instead (`train.tsv.gz`,
    `test.jsonl` …); with `files`, what relative paths start from (the recipe's folder when absent)."""
    text: Columns = "text"
    """Column of the text, or a list of columns that are joined by a space; of a tsv or csv without a header, positions
    from 0, in quotes."""
    quoting: Quoting | None = None
    """Quoting of a tsv: `csv` removes it, `none` keeps all quotes; null is `none`, but refuses a wholly quoted tsv."""
    train: Word = "train"
    """A split name, or a table (tsv, csv, jsonl, parquet; plain, .gz or .xz)."""
    validation: SplitOrSize = "validation"
    """As `train`; a number holds that many texts out of the training data."""
    test: SplitOrSize | None = "test"
    """As `validation`; nothing is tested when null."""


class PlainTextSettings(TextSettings):
    """The texts."""

    local: LocalText = LocalText()
    """What is different with `root`."""


class SeedSettings(Section):
    """Separate sources of chance, so that each can be changed alone."""

    initialization: Seed = 1
    """The weights before the first update."""
    data: Seed = 1
    """Order of the batches."""
    dropout: Seed = 1
    """What is dropped."""


class DeviceSettings(Section):
    """What computes, and how exactly."""

    kind: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """`auto` takes cuda before mps before cpu."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Of matrix products in training; weights are kept in fp32. `auto` takes what is measured to be the faster one for
    the model; on a GPU bf16 where fp32 takes more than half of the memory, and without measuring where the model is
    compiled; a run that is resumed keeps what it took."""
    threads: Threads | None = None
    """Processor threads; all cores when null."""
    compile: bool = False
    """Compile the model with torch.compile: slow to start."""
    deterministic: bool = False
    """Whether a GPU computes the same bits each time, by slower algorithms; a processor does so anyway."""


Model = TypeVar("Model", bound=Section)


class AnyRecipe(Section, Generic[Model]):
    """What the recipes of all tasks have."""

    name: Name
    """Name of the run and, unless `run.dir` says otherwise, of its folder."""
    description: str = ""
    """What the recipe is for and what it is expected to score."""
    run: RunSettings = RunSettings()
    """Where the run is kept."""
    model: Model
    """What learns: `kind` names an installed model (`s2s recipe models`), which brings its own keys."""
    seeds: SeedSettings = SeedSettings()
    """Sources of chance."""
    device: DeviceSettings = DeviceSettings()
    """What computes."""


class InitSettings(Section):
    """What becomes of the tensors that `init_from` gives."""

    parts: Literal["encoder", "all"] = "encoder"
    """What is taken of that run's model: its encoder, or the decoder and the projection, too, of one that writes."""
    freeze: Literal["nothing", "embeddings", "all"] = "nothing"
    """Which of them stay as they are: none, the tables of vectors, or all."""
    learning_rate_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Factor of the learning rate of those that do learn; the new tensors learn at the full rate."""


class FineTunedRecipe(AnyRecipe[Model], Generic[Model]):
    """What the recipes of tasks have that may begin with another run's encoder."""

    init_from: Word | None = None
    """Folder of a run, or of one of its checkpoints, whose encoder the model begins with: of a masked-language model, a
    classifier, a translator or a text-to-text model; or `hf:USER/NAME`, a run or weights that others published on the
    Hugging Face hub. Its tokenizer is taken over, or both with `init.parts: all`. `model` must give the encoder
    the same sizes."""
    init: InitSettings = InitSettings()
    """What becomes of the tensors that `init_from` gives."""

    @model_validator(mode="after")
    def _something_is_loaded(self) -> Self:
        if self.init_from is None and self.init != InitSettings():
            raise ValueError(
                "init says what becomes of loaded tensors, but init_from names no run; set it, or leave init out"
            )
        return self


@dataclass(frozen=True)
class TaskSchema:
    """What is known of a task before anything heavy is loaded.

    The recipe's class takes a model's section of any kind, and `settings` gives that of one kind. A trained model is
    used with `command` as the line `use` shows it, with `{}` in the place of the run; other `changeable` sections may
    be given it, and `scored_by` are options of `s2s evaluate` that say nothing to other tasks.
    """

    recipe: type[AnyRecipe]
    settings: Callable[[str], type[Section]]
    command: str = ""
    use: str = ""
    changeable: tuple[str, ...] = ("data", "device")
    scored_by: tuple[str, ...] = ()

    def whole(self, model: type[Section]) -> type[AnyRecipe]:
        """The recipe's class with a model's section in it; kept, since pydantic forgets it and would make it anew."""
        return _whole(self.recipe, model)


_whole = cache(lambda recipe, model: recipe[model])
