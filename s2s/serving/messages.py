"""Request and response schemas of the HTTP API; source of its OpenAPI document."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _written(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is no text: it has half of a surrogate pair") from None
    return text


Text = Annotated[str, AfterValidator(_written)]
"""Text that can be encoded as UTF-8; JSON can also spell lone surrogates."""


@dataclass(frozen=True)
class Limits:
    """Limits of requests, with the status code of a refusal in parentheses."""

    lines: int = 64  # texts per request (422) and per batch
    characters: int = 2_000  # characters per text (422)
    tokens: int = 1_024  # tokens per text (422)
    positions: int = 65_536  # texts × tokens of the longest × beam size, per request (422) and per batch
    beam: int = 16  # beam size (422); larger beams in recipes are reduced to it
    body: int = 1 << 18  # bytes per request (413)
    seconds: float = 30.0  # seconds from a request's first byte to its answer (408)
    waiting: int = 256  # requests in the queue (429)
    headers: float = 10.0  # seconds from a connection, or a request's first byte, to the end of its headers (408)
    connections: int = 1_000  # open connections (503); fewer if the process may not open as many files


class Message(BaseModel):
    """Base of all messages: frozen, without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class RequestMessage(Message):
    """Base of requests: `"5"` and `true` are no numbers."""

    model_config = ConfigDict(strict=True)


class Labelled(RequestMessage):
    """Classification request."""

    text: Text | list[Text]
    """One text, or several."""
    run: Text | None = None
    """Name of a served run; default: the first that classifies."""


class Source(RequestMessage):
    """Translation request."""

    text: Text | list[Text]
    """One text, or several."""
    run: Text | None = None
    """Name of a served run; default: the first that translates."""
    beam: int | None = Field(default=None, ge=1)
    """Beam size; default: the recipe's, at most the server's limit."""
    nbest: int = Field(default=1, ge=1)
    """Candidates per text, at most the beam size."""
    task: Text | None = None
    """Task of a text-to-text run."""
    alignment: bool = False
    """Return word alignments by attention."""
    attention: bool = False
    """Return the attention weights of the last layer, averaged over heads."""
    split_sentences: bool = False
    """Translate the sentences of each text one by one; `candidates` are then their translations."""


class Alignment(Message):
    """Word alignment of a text and a candidate."""

    source: list[str]
    """Words of the text."""
    target: list[str]
    """Words of the candidate."""
    links: list[tuple[int, int]]
    """Pairs of source and target word positions, from 0."""


class Attention(Message):
    """Attention weights of the last layer."""

    source: list[str]
    """Tokens of the text, including the end token."""
    target: list[str]
    """Tokens of the candidate, including the end token."""
    weights: list[list[float]]
    """For each target token, the weight of each source token; each row sums to 1."""


class Candidate(Message):
    """A candidate translation."""

    text: str
    """The translation."""
    score: float
    """Log probability divided by the length penalty; comparable for one source and beam size."""
    at_length_limit: bool = False
    """The output ended at the length limit of the recipe's `decoding` section."""
    alignment: Alignment | None = None
    """Word alignment, if requested and the model has attention."""
    attention: Attention | None = None
    """Attention weights, if requested and the model has attention."""


class Translated(Message):
    """Translation of one text."""

    text: str
    """Text of the best candidate; empty for an empty text."""
    candidates: list[Candidate]
    """Candidates, best first; none for an empty text."""
    longer_than_training: bool = False
    """The text has more tokens than any training text, so that parts of the translation may be missing: split it."""
    unknown: list[str] = []
    """Words that are not in the training text, if there are unusually many, so that the translation may be nonsense."""


class Translations(Message):
    """Translation response, in the order of the texts."""

    run: str
    """Name of the run."""
    translations: list[Translated]
    """One translation per text."""


class ClassifyResponse(Message):
    """Class of one text."""

    label: str
    """The most probable class; empty for an empty text."""
    probabilities: dict[str, float]
    """Probability of each class; empty for an empty text."""
    truncated: bool = False
    """The text was truncated, because it has more tokens than the model's `batches.max_length`."""


class Classes(Message):
    """Classification response, in the order of the texts."""

    run: str
    """Name of the run."""
    classes: list[ClassifyResponse]
    """One class per text."""


class Served(Message):
    """A served run."""

    name: str
    """Name for the field `run` of a request."""
    task: str
    """Task of the run."""
    answers: str
    """Path of its requests."""
    beam: int | None
    """Default beam size; null without a search."""
    tasks: list[str]
    """Names for the field `task`, for a text-to-text run."""


class Health(Message):
    """Status of the server."""

    status: str
    """`ok`, or a description of the problem."""
    version: str
    """Version of s2s."""
    runs: list[Served]
    """Served runs, in the order of the command line."""
    limits: dict[str, int | float]
    """Limits of requests, see `s2s.serving.messages.Limits`."""
