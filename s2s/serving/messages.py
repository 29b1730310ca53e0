"""What the server is asked and what it answers, as JSON; the page of its OpenAPI is made from this."""

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
"""What UTF-8 can write: JSON can spell more."""


@dataclass(frozen=True)
class Limits:
    """What a request may ask for at most; each is told with a status of its own.

    Attributes:
        lines: texts of one request (422), and of one batch.
        characters: of one text (422).
        tokens: of one text (422).
        positions: of a request, and of a batch: texts × tokens of the longest × beam (422).
        beam: hypotheses kept at each step (422); a recipe that has more is searched with these.
        body: bytes of a request (413).
        seconds: from a request's first byte to its answer (408).
        waiting: requests that wait for the model at once (429).
        headers: seconds from a connection, or a request's first byte, to the end of its headers (408).
        connections: open at once (503); fewer where the process may not open as many files.
    """

    lines: int = 64
    characters: int = 2_000
    tokens: int = 1_024
    positions: int = 65_536
    beam: int = 16
    body: int = 1 << 18
    seconds: float = 30.0
    waiting: int = 256
    headers: float = 10.0
    connections: int = 1_000


class Message(BaseModel):
    """A closed set of fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Labelled(Message):
    """What is to be classified."""

    text: Text | list[Text]
    """One text, or several."""
    run: Text | None = None
    """Which of the runs that are served; the first that classifies when absent."""


class Source(Message):
    """What is to be translated."""

    text: Text | list[Text]
    """One text, or several."""
    run: Text | None = None
    """Which of the runs that are served; the first that translates when absent."""
    beam: int | None = Field(default=None, ge=1)
    """Hypotheses kept at each step; when absent, the recipe's or, where that is larger, as many as there may be."""
    nbest: int = Field(default=1, ge=1)
    """Candidates for each text, at most as many as the beam holds."""
    task: Text | None = None
    """Which task of a text-to-text run."""
    alignment: bool = False
    """Whether to say which source word each target word looked at."""
    attention: bool = False
    """Whether to give the weights of the last layer, heads averaged."""


class Alignment(Message):
    """Words of a text and of a candidate, and who looked at whom."""

    source: list[str]
    """Words of the text."""
    target: list[str]
    """Words of the candidate."""
    links: list[tuple[int, int]]
    """Places of a source word and of a target word, from 0 on."""


class Attention(Message):
    """Where the model looked while it wrote."""

    source: list[str]
    """Pieces of the text, its end included."""
    target: list[str]
    """Pieces of the candidate, its end included."""
    weights: list[list[float]]
    """For each target piece, its share of each source piece; a row sums to one."""


class Candidate(Message):
    """One possible translation."""

    text: str
    """As it is read."""
    score: float
    """Log probability over the length penalty: comparable within one source and beam."""
    at_length_limit: bool = False
    """Whether the length limit of the recipe's `decoding` section ended it."""
    alignment: Alignment | None = None
    """Where it was asked for and the model has attention."""
    attention: Attention | None = None
    """The same."""


class Translated(Message):
    """One text's translation."""

    text: str
    """The best candidate's; empty for an empty text."""
    candidates: list[Candidate]
    """Best first; none for an empty text."""
    longer_than_training: bool = False
    """Whether the text has more tokens than any training text, so that parts of it may be missing: split it."""


class Translations(Message):
    """The answer, in the order of the texts."""

    run: str
    """Which model wrote it."""
    translations: list[Translated]
    """One for each text."""


class ClassifyResponse(Message):
    """One text's class."""

    label: str
    """The likeliest; empty for an empty text."""
    probabilities: dict[str, float]
    """Of each class; none for an empty text."""
    truncated: bool = False
    """Whether only the beginning of the text was read: it has more tokens than the model's `batches.max_length`."""


class Classes(Message):
    """The answer, in the order of the texts."""

    run: str
    """Which model named them."""
    classes: list[ClassifyResponse]
    """One for each text."""


class Served(Message):
    """A run that is served."""

    name: str
    """For the field `run` of a request."""
    task: str
    """What it was trained for."""
    answers: str
    """The path that it answers at."""
    beam: int | None
    """Of requests that name none; null where nothing is searched."""
    tasks: list[str]
    """Of a text-to-text run, the names for the field `task`."""


class Health(Message):
    """Whether the server is well, and what it serves."""

    status: str
    """`ok`, or what is wrong."""
    version: str
    """Of s2s."""
    runs: list[Served]
    """In the order of the command."""
    limits: dict[str, float]
    """See `s2s.serving.messages.Limits`."""
