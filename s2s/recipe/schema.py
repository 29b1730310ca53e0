"""Recipe schema: keys that tasks share, with meaning, unit, limits and default.

Keys of a single task are in its own package, such as `s2s.tasks.translation.recipe`. Keys, defaults and limits are
defined only here and there: validation, `docs/recipe.md`, shell completion and the saved recipe of every run are
generated from the schema. Attribute docstrings become the descriptions in `docs/recipe.md` and in the JSON schema.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Self, TypeVar, dataclass_transform, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

# Upper bounds catch typos before they become out-of-memory errors.
Probability = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Part = Annotated[float, Field(ge=0, le=1)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e38)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e3)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]

# Sizes of a model.
Width = Annotated[int, Field(gt=0, le=65_536)]
Inner = Annotated[int, Field(gt=0, le=262_144)]
Layers = Annotated[int, Field(gt=0, le=1_000)]
Length = Annotated[int, Field(gt=0, le=1_000_000)]
Epsilon = Annotated[float, Field(gt=0, le=1)]

# Sizes of data.
Pieces = Annotated[int, Field(gt=0, le=1_000_000)]
Examples = Annotated[int, Field(gt=0, le=10_000_000)]
Tokens = Annotated[int, Field(gt=0, le=100_000_000)]
Pixels = Annotated[int, Field(gt=0, le=4_096)]

# Sizes of training and search.
Updates = Annotated[int, Field(gt=0, le=1_000_000_000)]
Count = Annotated[int, Field(gt=0, le=10_000)]
Beam = Annotated[int, Field(gt=0, le=1_000)]
Threads = Annotated[int, Field(gt=0, le=4_096)]

LONGEST_WORD = 4_096
Word = Annotated[str, Field(min_length=1, max_length=LONGEST_WORD)]
# File systems allow 255 bytes, and the temporary name of an unfinished folder is longer than the run's name.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LONGEST_NAME = 200
Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=LONGEST_NAME)]


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"contains {', '.join(twice)} twice; list each class once")
    return names


Classes = Annotated[tuple[Word, ...], Field(min_length=2), AfterValidator(_different)]
Split = Examples | Word | tuple[Word, Word]
Columns = Word | Annotated[tuple[Word, ...], Field(min_length=1)]
SplitOrSize = Examples | Word
BleuTokenizer = Literal["auto", "13a", "zh", "ja-mecab", "ko-mecab", "char", "flores200", "none"]
Quoting = Literal["csv", "none"]
Pooling = Literal["mean", "first", "max", "last", "attention", "summary", "pooler"]


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass

    # Type checkers do not read `model_config`. Of a class that they know as frozen, keys may be narrowed by a subclass.
    @dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
    class _FrozenMeta(ModelMetaclass): ...

    class _Frozen(BaseModel, metaclass=_FrozenMeta): ...
else:
    _Frozen = BaseModel


class Section(_Frozen):
    """Base of all recipe sections: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class RunSettings(Section):
    """Output folder and checkpoint interval."""

    dir: Word | None = None
    """Folder of the run; null: `runs/<name>`."""
    save_minutes: Annotated[float, Field(gt=0, le=1440)] = 10.0
    """Minutes of training between checkpoints, independent of `validation.every`."""


class PieceSettings(Section):
    """Subword tokenization (sentencepiece)."""

    kind: Literal["unigram", "bpe", "char", "word", "bytes", "published"] = "unigram"
    """Tokenizer model. `bytes` needs no training and has 256 tokens; `published` comes with weights (`init_from`), or
    as a file (`model`)."""
    size: Pieces = 8000
    """Vocabulary size including the four special tokens; an upper limit for `char` and `word`, ignored by `bytes`."""
    byte_fallback: bool = True
    """Encode unknown characters as bytes, so that no text is unknown (unigram and bpe)."""
    normalization: Literal["identity", "nfkc"] = "nfkc"
    """`identity` keeps every character; `nfkc` applies Unicode NFKC and collapses white space."""
    lowercase: bool = False
    """Lower-case all text before tokenization; generated text is then lower-case, too."""
    model: Word | None = None
    """SentencePiece model (.model) or Hugging Face tokenizer (.json) to use instead of training one. `kind` is then
    `published`, `normalization` is `identity` unless it is set, because the model normalizes itself, and `size` is
    ignored."""

    @model_validator(mode="after")
    def _set_published_kind(self) -> Self:
        if self.model is None:
            return self
        if "kind" in self.model_fields_set and self.kind != "published":
            raise ValueError(f"kind is {self.kind}, but model names a trained tokenizer; leave one of them out")
        # The resolved values are saved with the run.
        object.__setattr__(self, "kind", "published")
        if "normalization" not in self.model_fields_set:
            object.__setattr__(self, "normalization", "identity")
        return self


class TokenizerSettings(PieceSettings):
    """Subword tokenization (sentencepiece)."""

    shared: bool = True
    """Use one vocabulary for source and target, or one each; one each if `source` or `target` is set. With one each,
    source and target have no common embeddings: `model.tie` is then `target` unless it is set."""
    source: PieceSettings | None = None
    """Tokenization of the source, such as `{kind: char}`; keys that are left out have the values above. Null: all
    values as above."""
    target: PieceSettings | None = None
    """Tokenization of the target, as `source`."""
    sampling: Annotated[float, Field(gt=0, le=10)] | None = None
    """Subword regularization: in each epoch, training texts are tokenized anew at random; null: tokens never change.
    `unigram`: exponent of the probabilities of the tokenizations, where smaller is more random (Kudo 2018). `bpe`:
    share of the merges that are left out, below 1 (BPE-dropout, Provilkov et al. 2020)."""

    @model_validator(mode="before")
    @classmethod
    def _set_side_defaults(cls, given: Any) -> Any:
        sides = {side: given.get(side) for side in ("source", "target")} if isinstance(given, dict) else {}
        if not any(isinstance(section, dict) for section in sides.values()):
            return given
        above = {key: given[key] for key in PieceSettings.model_fields if key in given}
        whole = {side: above | section for side, section in sides.items() if isinstance(section, dict)}
        return {"shared": False} | given | whole

    @model_validator(mode="after")
    def _check_vocabularies(self) -> Self:
        if self.shared and (self.source or self.target):
            raise ValueError("shared is true, but source and target have settings of their own; set shared: false")
        return self

    @model_validator(mode="after")
    def _check_sampled_tokens(self) -> Self:
        if self.sampling is None:
            return self
        kinds = {self.of("source").kind, self.of("target").kind}
        if not kinds & {"unigram", "bpe"}:
            raise ValueError(f"sampling has no effect on kind {self.kind}; set kind: unigram or bpe, or leave it out")
        if "bpe" in kinds and self.sampling >= 1:
            raise ValueError(f"sampling is {self.sampling}, a share of merges for kind bpe; set it below 1")
        return self

    def of(self, side: Literal["source", "target"]) -> PieceSettings:
        """Return the tokenizer settings of one side, with its own section or without.

        Args:
            side: `source` or `target`.
        """
        own = self.source if side == "source" else self.target
        return own or PieceSettings(**{key: getattr(self, key) for key in PieceSettings.model_fields})

    @property
    def sizes(self) -> tuple[int, int]:
        """Vocabulary sizes of source and target."""
        return self.of("source").size, self.of("target").size


# All of torch.optim except those that need sparse gradients (SparseAdam) or several losses per step (LBFGS).
# fmt: off
OptimizerName = Literal[
    "adam", "adamw", "sgd", "muon", "adadelta", "adafactor", "adagrad", "adamax", "asgd", "nadam", "radam", "rmsprop",
    "rprop",
]
# fmt: on
ScheduleName = Literal["inverse-sqrt", "cosine", "linear", "constant"]
_ADAM_LIKE = ("adam", "adamw", "muon", "nadam", "radam", "adamax")
OPTIMIZER_KEYS = {
    "betas": _ADAM_LIKE,
    "epsilon": (*_ADAM_LIKE, "rmsprop", "adagrad", "adadelta"),
    "momentum": ("sgd", "muon", "rmsprop"),
    "nesterov": ("sgd", "muon"),
    "weight_decay": tuple(name for name in get_args(OptimizerName) if name != "rprop"),
}
"""Optimizers that use a key of the section `training`."""


class OptimizationSettings(Section):
    """Optimization settings that all tasks share."""

    updates: Updates = 3000
    """Number of optimizer steps."""
    optimizer: OptimizerName = "adam"
    """Optimizer class of torch.optim: `adam` (Kingma & Ba 2015), `adamw` with decoupled weight decay (Loshchilov &
    Hutter 2019), `sgd`, and others. `muon` (Jordan et al. 2024) trains the matrices of hidden layers, and AdamW the
    embeddings, the output layer and all vectors, both at `learning_rate` (updates are scaled as in Liu et al. 2025)."""
    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    schedule: ScheduleName = "inverse-sqrt"
    """Learning-rate schedule after the warm-up. `cosine` and `linear` decay over the whole run, and would reach zero at
    the step after the last one."""
    warmup: Annotated[int, Field(ge=0, le=1_000_000_000)] | Share = 400
    """Steps during which the learning rate rises linearly from zero. A number below 1 is a fraction of `updates`; the
    run's recipe keeps the resulting number of steps."""
    betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay rates of the two moment estimates of `adam` and related optimizers; for `muon`, those of its AdamW part."""
    epsilon: PositiveFloat = 1e-9
    """Constant added to the denominator for numerical stability."""
    momentum: Probability = 0.0
    """Momentum of `sgd` or `rmsprop` (Polyak 1964). With `muon` the default is 0.95, and `nesterov` is true."""
    nesterov: bool = False
    """Use Nesterov momentum (Sutskever et al. 2013)."""
    weight_decay: NonNegativeFloat = 0.0
    """Weight decay of matrices; biases, norms and embeddings are exempt."""
    l1: NonNegativeFloat = 0.0
    """L1 penalty: adds this times the sum of absolute values to the loss, for the same tensors as `weight_decay`. With
    `adamw`, `adafactor` and `muon` it is decoupled: each weight moves toward zero by this times the learning rate, and
    stops at zero."""
    clip: PositiveFloat | None = 1.0
    """Gradient clipping: maximum global gradient norm; null disables it."""
    ema: Share | None = None
    """Maximum decay of an exponential moving average (EMA) of the weights. The average is then validated, saved and
    used for inference. After step u the decay is min(`ema`, (1 + u) / (10 + u)): 0.999 is reached at step 8,990."""
    freeze: tuple[Word, ...] = ()
    """Parts of the model to freeze, by parameter or module name (as in gradient norms) or by pattern:
    `[encoder.embedding, encoder.layers.0, "*.bias"]`. A module's name freezes all its parameters."""
    noise_scale: bool = False
    """Measure the gradient noise scale (McCandlish et al. 2018): the batch size, in items, at which a gradient is
    equal parts signal and noise. Computed from the micro-batches of each step, so it needs at least two of them."""
    average_last: Count | None = None
    """Checkpoint averaging: when training ends, average the weights of this many last checkpoints, and use the average
    for inference."""

    @property
    def depends_on_updates(self) -> bool:
        """True if the learning rate of each step depends on `updates`: a longer run has another schedule."""
        return self.schedule in ("cosine", "linear")

    @model_validator(mode="after")
    def _set_warmup(self) -> "OptimizationSettings":
        if isinstance(self.warmup, float):
            # Resolved once: if the number of steps changes later, a schedule that has started stays the same.
            object.__setattr__(self, "warmup", min(max(1, round(self.warmup * self.updates)), self.updates - 1))
        if self.warmup >= self.updates and self.depends_on_updates:
            raise ValueError(
                f"warmup ({self.warmup}) must be below updates ({self.updates}) with schedule {self.schedule}; "
                "set training.warmup=0.1 (a share of the updates), or raise updates"
            )
        return self

    @model_validator(mode="after")
    def _check_optimizer_settings(self) -> "OptimizationSettings":
        if self.optimizer == "muon":
            # The resolved values are saved with the run, like the warm-up.
            if "momentum" not in self.model_fields_set:
                object.__setattr__(self, "momentum", 0.95)
            if "nesterov" not in self.model_fields_set:
                object.__setattr__(self, "nesterov", self.momentum > 0)
        for key, readers in OPTIMIZER_KEYS.items():
            # A saved recipe has all keys, including defaults that the optimizer does not use.
            if self.optimizer not in readers and getattr(self, key) != type(self).model_fields[key].default:
                remedy = f"leave {key} out, or set optimizer: {readers[0]}"
                raise ValueError(f"{key} has no effect with {self.optimizer}; {remedy}")
        if self.nesterov and not self.momentum:
            raise ValueError("nesterov is a form of momentum, which is 0; set momentum: 0.9, or nesterov: false")
        return self


class PauseSettings(Section):
    """Validation and checkpoint settings that all tasks share."""

    every: Updates = 500
    """Steps between two validations. Each validation, and the last step, saves a checkpoint. See `run.save_minutes`."""
    patience: Updates | None = None
    """Early stopping: stop after this many validations without improvement; null disables it."""
    keep_best: Count = 1
    """Number of best checkpoints to keep, besides the last one."""
    if TYPE_CHECKING:
        metric: str  # each task has its own list


class SearchSettings(Section):
    """Beam search settings."""

    beam: Beam = 5
    """Beam size: hypotheses kept at each step; 1 is greedy search. A wider beam never finds a lower score than a
    narrower one."""
    length_penalty: Annotated[float, Field(ge=0, le=10)] = 1.0
    """Length penalty: exponent α of ((5 + length) / 6)^α, by which the log probability is divided (Wu et al. 2016).
    Above about 1.5 the longest hypotheses win."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Precision of matrix products in the search; `bf16` may be faster for a wide model, and is less exact
    (docs/speed.md)."""
    ensemble: Literal["probabilities", "log"] = "probabilities"
    """Mean over the members of an ensemble (`RUN+RUN`): of the probabilities, or of their logarithms."""
    min_length: Annotated[int, Field(ge=0, le=4_096)] = 0
    """Minimum output length in tokens; the maximum length wins."""
    no_repeat_ngram: Annotated[int, Field(ge=0, le=100)] = 0
    """Size of n-grams of tokens that an output may have only once; 0 allows repetition."""
    beam_groups: Beam = 1
    """Groups of diverse beam search (Vijayakumar et al. 2018), a divisor of `beam`; 1 is ordinary beam search."""
    diversity_penalty: NonNegativeFloat = 0.5
    """Penalty, in nats, of a token for each time that earlier groups take it at the same step."""
    sample: bool = False
    """Draw outputs from the model's probabilities, instead of a beam search."""
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    """Sampling temperature; 0 always takes the most probable token."""
    top_k: Count | None = None
    """Sample from this number of most probable tokens; null: from all."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sample from the most probable tokens whose probabilities first reach this sum (nucleus sampling)."""
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Sample from tokens with at least this share of the largest probability."""
    seed: Seed = 1
    """Seed of the sampling. Equal sources have equal samples."""
    if TYPE_CHECKING:
        batch: Count

    @model_validator(mode="after")
    def _check_sampling_settings(self) -> Self:
        names = ("temperature", "top_k", "top_p", "min_p", "seed")
        changed = [name for name in names if getattr(self, name) != type(self).model_fields[name].default]
        if changed and not self.sample:
            raise ValueError(f"{changed[0]} has no effect on a beam search; set sample: true, or leave it out")
        return self

    @model_validator(mode="after")
    def _check_beam_groups(self) -> Self:
        if self.beam % self.beam_groups:
            raise ValueError(
                f"beam_groups ({self.beam_groups}) does not divide beam ({self.beam}); set beam to a multiple of it"
            )
        if self.sample and self.beam_groups > 1:
            raise ValueError("beam_groups has no effect with sample: true; leave one of them out")
        if self.beam_groups == 1 and self.diversity_penalty != 0.5:
            raise ValueError("diversity_penalty has no effect without beam_groups; set beam_groups, or leave it out")
        return self

    @property
    def sampling_seed(self) -> int | None:
        """Seed of the sampling; None for a beam search."""
        return self.seed if self.sample else None

    def with_beam(self, beam: int) -> Self:
        """Return these settings with ordinary beam search of this size: one group, no sampling."""
        return self.model_copy(update={"beam": beam, "beam_groups": 1, "sample": False})


class DecodingSettings(SearchSettings):
    """Text generation settings."""

    max_ratio: Annotated[float, Field(gt=0, le=100)] = 2.0
    """Maximum output length: this times the number of source tokens, plus `max_extra`."""
    max_extra: Annotated[int, Field(ge=0, le=4_096)] = 10
    """Tokens added to the maximum output length; see `max_ratio`."""
    copy_penalty: NonNegativeFloat = 0.0
    """Penalty, in nats, of each output token that occurs in the source, for models that copy source words; needs
    `tokenizer.shared`."""
    batch: Count = 64
    """Number of sentences decoded in a batch."""


class LocalText(Section):
    """Overrides for tables read from `data.root` instead of the hub data set."""

    text: Columns | None = None
    """As `data.text`; null: the value of `data.text`."""


MADE = ("built-in", "homonyms")
"""Generated corpora: a split is a number of examples to generate, none of which are held out from another split."""


class DataSection(Section):
    """Base of the `data` sections: a section that names three splits."""

    if TYPE_CHECKING:
        # See `TrainRecipe`.
        train: Split
        validation: Split
        test: Split | None


class SourceSettings(Section):
    """Data source settings that all tasks share."""

    corpus: Word = "files"
    """`files`, or the name of a Hugging Face data set such as `stanfordnlp/imdb` or `ylecun/mnist`."""
    config: Word | None = None
    """Configuration of the hub data set."""
    revision: Word | None = None
    """Git revision of the hub data set."""
    root: Word | None = None
    """Local folder to read instead of the hub data set."""
    seed: Seed = 1
    """Seed for selecting held-out examples."""

    @model_validator(mode="after")
    def _check_root(self) -> Self:
        if self.root is not None and self.corpus in MADE:
            raise ValueError(
                f"root is {self.root!r}, but the corpus {self.corpus} is generated; leave out root, or set "
                "corpus: files to read your own"
            )
        return self


class TextSettings(SourceSettings, DataSection):
    """Text source."""

    root: Word | None = None
    """Local folder. With a hub data set: read tables with the usual names from there instead (`train.tsv.gz`,
    `test.jsonl` …). With `files`: the folder that relative paths start from; null: the recipe's folder."""
    text: Columns = "text"
    """Column of the text, or a list of columns that are joined by a space. For a tsv or csv without a header: column
    positions from 0, in quotes."""
    quoting: Quoting | None = None
    """Quoting of a tsv: `csv` removes it, `none` keeps all quotes; null is `none`, but refuses a fully quoted tsv."""
    train: Word = "train"
    """Split name, or a table (tsv, csv, jsonl, parquet; plain, .gz or .xz)."""
    validation: SplitOrSize = "validation"
    """As `train`; a number holds out that many texts from the training data."""
    test: SplitOrSize | None = "test"
    """As `validation`; null: no test."""


class PlainTextSettings(TextSettings):
    """Text data."""

    local: LocalText = LocalText()
    """Settings that differ with `root`."""


class SeedSettings(Section):
    """Independent random seeds, so that each source of randomness can be varied alone."""

    initialization: Seed = 1
    """Seed of the initial weights."""
    data: Seed = 1
    """Seed of the batch order."""
    dropout: Seed = 1
    """Seed of dropout."""


class DeviceSettings(Section):
    """Device, precision and determinism."""

    kind: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device; `auto` prefers cuda over mps over cpu."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products in training (mixed precision); weights are kept in fp32. `auto` measures which is
    faster for the model. On a GPU it takes bf16 without measuring if fp32 needs more than half of the memory or the
    model is compiled. A resumed run keeps its precision."""
    threads: Threads | None = None
    """Number of CPU threads; null: all cores."""
    compile: bool = False
    """Compile the model with torch.compile; the first steps are slow."""
    deterministic: bool = False
    """Use deterministic algorithms on a GPU, which are slower; a CPU is always deterministic."""


Model = TypeVar("Model", bound=Section)


class TrainRecipe(Section, Generic[Model]):
    """Recipe of a training run of any task.

    Type checkers also know the keys that each task defines itself. Pydantic does not: it would put inherited keys
    before the task's own, and `docs/recipe.md` and saved recipes have them in the task's order.
    """

    name: Name
    """Name of the run and, unless `run.dir` is set, of its folder."""
    description: str = ""
    """Purpose of the recipe and its expected score."""
    run: RunSettings = RunSettings()
    """Output of the run."""
    model: Model
    """Model: `kind` names an installed model (`s2s recipe models`), which defines the other keys."""
    seeds: SeedSettings = SeedSettings()
    """Random seeds."""
    device: DeviceSettings = DeviceSettings()
    """Device, precision and determinism."""
    if not TYPE_CHECKING:

        @classmethod
        def __class_getitem__(cls, parameters):
            # The keys' descriptions are inherited; pydantic would look for their source in each frame of the stack.
            config = cls.model_config
            cls.model_config = config | {"use_attribute_docstrings": False}
            try:
                parametrized = super().__class_getitem__(parameters)
            finally:
                cls.model_config = config
            parametrized.model_config = parametrized.model_config | {"use_attribute_docstrings": True}
            return parametrized

    if TYPE_CHECKING:
        task: str
        data: DataSection
        batches: Section
        training: OptimizationSettings
        validation: PauseSettings

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """Names under which a run saves its tokenizers: one name, unless a task has none or several."""
        return ("text",)

    def check_overrides(self, trained: "TrainRecipe") -> None:
        """Refuse overrides that a trained model cannot follow.

        Args:
            trained: Recipe that the model was trained with.

        Raises:
            UserError: This recipe contradicts the trained model.
        """


class SearchRecipe(TrainRecipe[Model], Generic[Model]):
    """Recipe of a task that generates text by beam search."""

    if TYPE_CHECKING:
        decoding: SearchSettings


class InitSettings(Section):
    """Use of the weights that `init_from` loads."""

    parts: Literal["encoder", "all"] = "encoder"
    """Parts to load: the encoder, or also the decoder and the output projection of a model that generates text."""
    freeze: Literal["nothing", "embeddings", "all"] = "nothing"
    """Loaded tensors to freeze: none, the embeddings, or all."""
    learning_rate_scale: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Learning-rate factor for loaded tensors that are not frozen; new tensors train at the full rate."""


class VectorSettings(Section):
    """Pretrained word vectors as initial embeddings."""

    source: Word | None = None
    """File in word2vec or GloVe text format (plain, .gz or .xz) for the source's words, or those of a classified text.
    Vectors have `model.width` numbers. Tokens without a vector, such as parts of words, are initialized as usual."""
    target: Word | None = None
    """File for the target's words, as `source`."""
    freeze: bool = False
    """Do not train these embeddings, those without a pretrained vector included."""

    @model_validator(mode="after")
    def _check_files(self) -> Self:
        if self.source is None and self.target is None:
            raise ValueError("vectors names no file; set vectors.source or vectors.target")
        return self


class FineTunedRecipe(TrainRecipe[Model], Generic[Model]):
    """Recipe keys of tasks that can initialize from another run's encoder."""

    init_from: Word | None = None
    """Folder of a run or checkpoint whose encoder initializes the model: a masked-language model, a classifier, a
    translation or a text-to-text model; or `hf:USER/NAME`, a run or published weights on the Hugging Face hub. Its
    tokenizer is used, too, or both tokenizers with `init.parts: all`. `model` must give the encoder the same sizes."""
    init: InitSettings = InitSettings()
    """Use of the weights that `init_from` loads."""
    vectors: VectorSettings | None = None
    """Pretrained word vectors as initial embeddings; null: none."""
    if TYPE_CHECKING:
        tokenizer: PieceSettings

    @model_validator(mode="after")
    def _check_initialization_source(self) -> Self:
        if self.init_from is None and self.init != InitSettings():
            raise ValueError("init has no effect without init_from; set init_from, or leave init out")
        if self.init_from is not None and self.vectors is not None:
            raise ValueError("init_from has embeddings already, which vectors would replace; leave one of them out")
        return self


@dataclass(frozen=True)
class TaskSchema:
    """Description of a task that needs no torch import.

    Attributes:
        recipe: Recipe class, generic in the model section.
        settings: Function from `model.kind` to the class of the model section.
        command: Command that uses a trained model, such as `translate`.
        use: Line that shows how to use a trained model, with `{}` for the folder of the run and for an input.
        example: Input for `use`, as words of a shell; training shows one of the run's own data, if the task has any.
        changeable: Recipe sections that may be overridden after training.
        scored_by: Options of `s2s evaluate` that apply to this task, but not to all tasks.
    """

    recipe: type[TrainRecipe]
    settings: Callable[[str], type[Section]]
    command: str = ""
    use: str = ""
    example: str = ""
    changeable: tuple[str, ...] = ("data", "device")
    scored_by: tuple[str, ...] = ()

    def recipe_class(self, model: type[Section]) -> type[TrainRecipe]:
        """Return the recipe class for one model section.

        The class is cached, because pydantic does not keep it and would create it again.
        """
        return _recipe_class(self.recipe, model)  # pyright: ignore[reportArgumentType]


TASK = "task"
"""Key of a recipe that names its task."""
Tasks = Mapping[str, TaskSchema]
"""Installed tasks by name."""


@cache
def _recipe_class(recipe: Any, model: Any) -> type[TrainRecipe]:
    return recipe[model]


class PixelSettings(Section):
    """Image preprocessing."""

    size: Pixels = 32
    """Height and width in pixels; images of another size are resized."""
    channels: Literal[1, 3] = 3
    """Number of color channels: 1 is grayscale, 3 is RGB."""
    mean: tuple[Annotated[float, Field(ge=-1000, le=1000)], ...] | None = None
    """Mean of each channel, where white is 1, which is subtracted from all pixels; null: the mean of the training
    images."""
    deviation: tuple[PositiveFloat, ...] | None = None
    """Standard deviation of each channel, by which the centered pixels are divided; null: that of the training
    images."""

    @model_validator(mode="after")
    def _check_channel_statistics(self) -> Self:
        for key, values in (("mean", self.mean), ("deviation", self.deviation)):
            if values is not None and len(values) != self.channels:
                raise ValueError(
                    f"{key} has {len(values)} numbers, but channels is {self.channels}; write one for each channel"
                )
        return self
