"""What a recipe of `task: language-model` says: texts, how they are packed, and how a decoder learns to go on."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import language_settings

_Context = Annotated[int, Field(ge=2, le=1_000_000)]


class DocumentSettings(schema.PlainTextSettings):
    """The texts."""

    corpus: schema.Word = "files"
    """`built-in` (the English sentences of the built-in corpus), `files`, or the name of a Hugging Face data set such
    as `stanfordnlp/imdb`."""
    train: schema.SplitOrSize = "train"  # pyright: ignore[reportIncompatibleVariableOverride]
    """A split name; a table (tsv, csv, jsonl, parquet); any other file, or a folder of `.txt` files: plain text. Files
    may be plain, .gz or .xz. Of the built-in corpus, how many sentences."""
    document: Literal["line", "paragraph", "file"] = "paragraph"
    """What a document of plain text is: a line, what stands between empty lines, or the whole file. Of a table and of
    the hub, it is a row."""

    @model_validator(mode="after")
    def _only_the_built_in_is_made_to_measure(self) -> Self:
        if self.corpus == "built-in":
            for name in ("train", "validation", "test"):
                if isinstance(split := getattr(self, name), str) and split != name:
                    raise ValueError(f"{name} is {split!r}, but of the built-in corpus it is a number of sentences")
        elif isinstance(self.train, int):
            raise ValueError(f"train is {self.train}; only the built-in corpus is made to measure: name a file")
        return self


class TextPieces(schema.PieceSettings):
    """How text becomes pieces (sentencepiece)."""

    normalization: Literal["identity", "nfkc"] = "identity"
    """`identity` keeps every character, so that bits per byte are exact; `nfkc` applies Unicode NFKC and folds white
    space."""


class PackingSettings(schema.Section):
    """How texts become batches: documents stand one after the other, and are cut into rows of equal length."""

    length: _Context = 256
    """Pieces of a row."""
    tokens: schema.Tokens = 8192
    """Pieces of a batch: as many rows as it holds."""
    across_documents: bool = False
    """Whether a document is read in the light of those before it in its row. Otherwise attention, positions and
    recurrent states begin anew with each document."""


class LanguageTraining(schema.OptimizationSettings):
    """The optimisation."""

    tokens_per_update: schema.Tokens | None = None
    """Pieces that one update learns from, about, over all micro-batches and devices; one batch when absent."""


class LanguageValidation(schema.PauseSettings):
    """When training pauses to measure and to save."""

    metric: Literal["loss", "bits_per_byte"] = "loss"
    """What decides which checkpoint is best: the loss in nats per piece, or the bits per byte of the text."""
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Texts written at each validation, for TensorBoard: the first from nothing, the others from the first pieces of
    validation texts."""


class ScoringSettings(schema.Section):
    """How documents are read when they are scored, each alone."""

    context: _Context | None = None
    """Pieces that are read at once; `batches.length` when null."""
    stride: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """By how many pieces the context moves on in a longer document: only these are scored, with those before them in
    sight. Smaller is slower and kinder; half of the context when null."""

    @model_validator(mode="after")
    def _the_stride_fits(self) -> Self:
        if self.context is not None and self.stride is not None and self.stride > self.context:
            raise ValueError(f"stride ({self.stride}) must not be longer than context ({self.context}); lower stride")
        return self


class LanguageRecipe(schema.AnyRecipe[schema.Model], Generic[schema.Model]):
    """Language models: what is read, what learns, how, and how it is measured."""

    task: Literal["language-model"]
    """What is learned: what comes next in a text."""
    data: DocumentSettings = DocumentSettings()
    """The texts."""
    tokenizer: TextPieces = TextPieces()
    """How text becomes pieces."""
    batches: PackingSettings = PackingSettings()
    """How texts become batches."""
    training: LanguageTraining = LanguageTraining()
    """The optimisation."""
    validation: LanguageValidation = LanguageValidation()
    """When training pauses to measure and to save."""
    scoring: ScoringSettings = ScoringSettings()
    """How documents are read when they are scored."""

    @model_validator(mode="after")
    def _a_row_fits(self) -> Self:
        if self.batches.length > self.batches.tokens:
            raise ValueError(
                f"batches.tokens ({self.batches.tokens}) must hold a row of batches.length ({self.batches.length}); "
                f"try batches.tokens={self.batches.length}"
            )
        if self.stride > self.context:
            raise ValueError(
                f"scoring.stride ({self.stride}) must not be longer than what is read at once ({self.context}); try "
                f"scoring.stride={self.context}"
            )
        return self

    @property
    def context(self) -> int:
        """Pieces that are read at once when documents are scored."""
        return self.scoring.context or self.batches.length

    @property
    def stride(self) -> int:
        """By how many pieces the context moves on."""
        return self.scoring.stride or max(1, self.context // 2)


SCHEMA = schema.TaskSchema(
    LanguageRecipe,
    language_settings,
    command="generate",
    use="generate:   s2s generate {} 'The'",
    changeable=("data", "device", "scoring"),
)
