"""Recipe of `task: language-model`: texts, packing, training and scoring."""

from typing import Annotated, Generic, Literal, Self

from pydantic import Field, model_validator

from s2s.recipe import schema
from s2s.recipe.installed import language_settings

_Context = Annotated[int, Field(ge=2, le=1_000_000)]


class DocumentSettings(schema.PlainTextSettings):
    """The texts."""

    corpus: schema.Word = "files"
    """Source of the texts.

    `built-in` (the English sentences of the built-in corpus), `files`, or the name of a Hugging Face data set such as
    `stanfordnlp/imdb`.
    """
    train: schema.SplitOrSize = "train"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Training texts.

    A split name; a table (tsv, csv, jsonl, parquet); any other file, or a folder of `.txt` files, is plain text. Files
    may be plain, .gz or .xz. For the built-in corpus, the number of sentences.
    """
    document: Literal["line", "paragraph", "file"] = "paragraph"
    """Unit of a document in plain text.

    A line, a paragraph (text between empty lines) or the whole file. In tables and hub data sets, each row is a
    document.
    """

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        if self.corpus == "built-in":
            for name in ("train", "validation", "test"):
                if isinstance(split := getattr(self, name), str) and split != name:
                    raise ValueError(f"{name} is {split!r}; for the built-in corpus, set a number of sentences")
            if self.text != type(self).model_fields["text"].default:
                raise ValueError(f"text is {self.text!r}, but the built-in corpus has no columns: leave it out")
        elif isinstance(self.train, int):
            raise ValueError(f"train is {self.train}; a number of sentences needs the built-in corpus; name a file")
        return self


class TextPieces(schema.PieceSettings):
    """Tokenizer of the texts (sentencepiece)."""

    normalization: Literal["identity", "nfkc"] = "identity"
    """Unicode normalization.

    `identity` keeps every character, so that bits per byte are exact; `nfkc` applies Unicode NFKC and collapses white
    space.
    """


class PackingSettings(schema.Section):
    """Packing: documents are concatenated and cut into rows of equal length."""

    length: _Context = 256
    """Tokens of a row."""
    tokens: schema.Tokens = 8192
    """Tokens of a batch: as many rows as fit."""
    across_documents: bool = False
    """Attend to earlier documents in the same row.

    If false, attention, positions and recurrent states restart with each document.
    """


class LanguageTraining(schema.OptimizationSettings):
    """Optimizer, learning-rate schedule and regularization."""

    tokens_per_update: schema.Tokens | None = None
    """Approximate number of tokens for an optimizer step (gradient accumulation).

    The number includes all micro-batches and devices; null uses one batch.
    """


class LanguageValidation(schema.PauseSettings):
    """Schedule and metrics of validations and checkpoints."""

    metric: Literal["loss", "bits_per_byte"] = "loss"
    """Metric that selects the best checkpoint.

    The loss in nats per token, or the bits per byte of the text.
    """
    samples: Annotated[int, Field(ge=0, le=100)] = 3
    """Number of texts to generate at each validation, for TensorBoard.

    The first is generated without a prompt, the others from the first tokens of validation texts.
    """


class ScoringSettings(schema.Section):
    """Scoring of documents, each by itself."""

    context: _Context | None = None
    """Context length in tokens; null uses `batches.length`."""
    stride: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Stride of the context window in longer documents, in tokens.

    Each further window scores its last `stride` tokens, with the tokens before them as context. A smaller stride is
    slower and gives better scores. Null uses half of the context.
    """

    @model_validator(mode="after")
    def _check_stride(self) -> Self:
        if self.context is not None and self.stride is not None and self.stride > self.context:
            raise ValueError(f"stride ({self.stride}) must not be longer than context ({self.context}); lower stride")
        return self


class LanguageRecipe(schema.TrainRecipe[schema.Model], Generic[schema.Model]):
    """Recipe of a language model."""

    task: Literal["language-model"]
    """The task: predict the next token of a text."""
    data: DocumentSettings = DocumentSettings()
    """The texts."""
    tokenizer: TextPieces = TextPieces()
    """Tokenizer of the texts."""
    batches: PackingSettings = PackingSettings()
    """Packing of documents into batches."""
    training: LanguageTraining = LanguageTraining()
    """Optimizer, learning-rate schedule and regularization."""
    validation: LanguageValidation = LanguageValidation()
    """Schedule and metrics of validations and checkpoints."""
    scoring: ScoringSettings = ScoringSettings()
    """Scoring of documents."""

    @model_validator(mode="after")
    def _check_row_length(self) -> Self:
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
        """Context length for scoring, in tokens."""
        return self.scoring.context or self.batches.length

    @property
    def stride(self) -> int:
        """Stride of the context window, in tokens."""
        return self.scoring.stride or max(1, self.context // 2)


SCHEMA = schema.TaskSchema(
    LanguageRecipe,
    language_settings,
    command="generate",
    use="generate:   s2s generate {} {}",
    example="'The'",
    changeable=("data", "device", "scoring"),
)
