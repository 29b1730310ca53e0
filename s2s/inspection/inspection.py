"""Results of `s2s inspect` as data classes, shown as page, figure and JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt8

from s2s.errors import UserError

Kind = Literal["encoder", "decoder", "cross"]
MOST_INSPECTED = 1_024
"""Maximum number of input tokens: each attention head has a weight for each pair."""
_DIGITS = 6
_SHOWN = 3
_WITHOUT = "leave it out"


@dataclass(frozen=True)
class InspectionRequest:
    """Selection of inputs, word, layer and head.

    Attributes:
        inputs: One input, or two with a common word; empty: an example of a split.
        part: Rows of the split; None with inputs.
        row: Row of the example, from 0.
        output: Output to force; None: the model's own output. Only for translation.
        layer: Layer of the walk and the figure, from 0; negative: the last.
        head: Head of the walk, from 0.
        word: Word of the walk; None: the longest, or for two inputs the one with the largest difference.
        task: Task of a text-to-text model by name; None: its only task.
    """

    inputs: tuple[str, ...] = ()
    part: Any = None
    row: int = 0
    output: str | None = None
    layer: int = -1
    head: int = 0
    word: str | None = None
    split: str = "test"
    task: str | None = None

    @property
    def example(self) -> Any:
        """The selected row of the split.

        Raises:
            UserError: The split has no such row.
        """
        if self.row >= len(self.part):
            raise UserError(f"there is no row {self.row + 1}", "--row", f"choose 1 to {len(self.part)}")
        return self.part.select([self.row])

    def chosen_layer(self, count: int) -> int:
        """Return the selected layer."""
        if self.layer >= count:
            raise UserError(f"there is no layer {self.layer}", "--layer", f"choose 0 to {count - 1}")
        return self.layer if self.layer >= 0 else count - 1


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of `encoder` or `decoder` self-attention or `cross`-attention; each row sums to 1.

    Target rows are the generated tokens: row i is the attention when token i was predicted. The columns of decoder
    self-attention are the tokens fed so far.
    """

    kind: Kind
    weights: Float[np.ndarray, "layer head row column"]
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True)
class Walk:
    """Scaled dot-product attention of one position in one head, step by step.

    Attributes:
        place: Position of the word's first token.
        dots: Dot products of the query with each key.
        scaled: Dot products divided by √size, plus the attention mask and position bias.
        weights: Softmax of the scaled products.
        read: Mean of the values weighted by these.
        difference: Largest absolute difference between `read` and the output of the model's own attention kernel.
    """

    layer: int
    head: int
    word: str
    place: int
    pieces: Sequence[str]
    query: Float[np.ndarray, " size"]
    keys: Float[np.ndarray, "pieces size"]
    values: Float[np.ndarray, "pieces size"]
    dots: Float[np.ndarray, " pieces"]
    scaled: Float[np.ndarray, " pieces"]
    weights: Float[np.ndarray, " pieces"]
    read: Float[np.ndarray, " size"]
    difference: float


@dataclass(frozen=True)
class SameWord:
    """A word in two contexts.

    Attributes:
        word: The word as in the first input.
        layers: Names of the encoder layers, starting with the embedding.
        cosines: Cosine similarity of the word's two vectors after each layer.
        looked: For each input and attention layer, the most attended words with their weights (mean over heads).
    """

    word: str
    layers: Sequence[str]
    cosines: Sequence[float]
    looked: Sequence[Sequence[Sequence[tuple[str, float]]]]


@dataclass(frozen=True)
class Positions:
    """Position embeddings of an `encoder` or `decoder`, and the dot products of all pairs."""

    name: str
    kind: str
    vectors: Float[np.ndarray, "length width"]
    products: Float[np.ndarray, "length length"]


@dataclass(frozen=True)
class Saliency:
    """Saliency of input words or patches for each answer.

    Attributes:
        method: `gradient x input`, `integrated gradients`, or `attention rollout`, which is never negative.
        answers: The class, or the generated tokens.
        weights: Saliency; positive if a word supports the answer.
        difference: For integrated gradients, the largest completeness error: sum of an answer's saliency minus the
            score difference of input and baseline. None for other methods.
        total: Sum of the saliency of the answer with this error, to compare the error with.
    """

    method: str
    answers: Sequence[str]
    words: Sequence[str]
    weights: Float[np.ndarray, "answer word"]
    difference: float | None = None
    total: float | None = None


@dataclass(frozen=True)
class InspectedExample:
    """Inspection of one input.

    Attributes:
        source: The text, or the name of the image.
        remark: A note on the output, such as its probability.
        walk: Attention step by step; None if the encoder has no scaled dot-product attention.
        image: Pixels, if the input is an image; the tokens are then its patches, row by row.
        patches: Number of patches per image row.
    """

    source: str
    output: str
    remark: str
    attention: Sequence[AttentionMaps]
    saliency: Sequence[Saliency]
    walk: Walk | None = None
    image: UInt8[np.ndarray, "channels height width"] | None = None
    patches: int = 0


@dataclass(frozen=True)
class Inspection:
    """Inspection of a run's model on one input, or on two with a common word, which is compared."""

    run: str
    checkpoint: str
    task: str
    examples: Sequence[InspectedExample]
    word: SameWord | None
    positions: Sequence[Positions]

    def __str__(self) -> str:
        """Return a summary for the terminal."""
        lines = [f"{self.run}, checkpoint {self.checkpoint}, task {self.task}"]
        for example in self.examples:
            lines += ["", example.source, f"  → {example.output}" + (f"  ({example.remark})" if example.remark else "")]
            lines += _looks(example) + [line for found in example.saliency for line in _heaviest(found)]
        if self.word:
            cosines = ", ".join(f"{name} {c:.3f}" for name, c in zip(self.word.layers, self.word.cosines, strict=True))
            lines += ["", f"{self.word.word}: cosine similarity of its vectors in the two inputs: {cosines}"]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return everything as JSON; `attention` has the argument names of BertViz."""
        return json.dumps(plain(self), ensure_ascii=False) + "\n"


def check_request(request: InspectionRequest, task: str) -> None:
    """Refuse more than two inputs, and options that would have no effect.

    Args:
        task: Task of the run.
    """
    count = len(request.inputs)
    if count > 2:
        raise UserError(f"there are {count} inputs", "INPUT", "give one or two, each in quotes")
    if request.output is not None and count != 1:
        raise UserError(f"needs exactly one INPUT, not {count}", "--translation", "give one INPUT, in quotes")
    if request.output is not None and task != "translation":
        raise UserError(f"a run of task {task} has no translations", "--translation", _WITHOUT)
    if request.task is not None and task != "text-to-text":
        raise UserError(f"a run of task {task} has no other tasks", "--task", _WITHOUT)


def check_chosen(found: Inspection, focus: InspectionRequest) -> None:
    """Refuse a selected layer or head that the model does not have; an example with a walk was checked before."""
    for example in found.examples:
        if example.walk is not None:
            continue
        if count := max((len(maps.weights) for maps in example.attention), default=0):
            focus.chosen_layer(count)
        elif focus.layer >= 0:
            raise UserError("the model has no attention layers", f"--layer {focus.layer}", _WITHOUT)
        if focus.head:
            raise UserError("the model's encoder has no attention heads to show", f"--head {focus.head}", _WITHOUT)


def _looks(example: InspectedExample) -> list[str]:
    """List each target token with its most attended source token: last layer, mean over its heads."""
    lines = []
    for maps in example.attention:
        if maps.kind == "cross":
            most, wide = maps.weights[-1].mean(axis=0), max(map(len, (*maps.rows, "output")))
            lines.append(f"  {'output':{wide}}  most attended input token (cross-attention, last layer, mean of heads)")
            for piece, row in zip(maps.rows, most, strict=True):
                lines.append(f"  {piece:{wide}}  {row.max():4.0%}  {maps.columns[int(row.argmax())]}")
    return lines


def _heaviest(saliency: Saliency) -> list[str]:
    if len(saliency.answers) > 1:
        return []
    order = np.argsort(-np.abs(saliency.weights[0]), kind="stable")[: 2 * _SHOWN]
    words = " · ".join(f"{saliency.words[i]} {saliency.weights[0, i]:+.2f}" for i in order)
    return [f"  {saliency.method}: {words}"]


def plain(value: Any, digits: int = _DIGITS) -> Any:
    """Convert a value to JSON types, with floats of `digits` significant digits.

    Lists of attention maps become the arguments of BertViz's `head_view` and `model_view`.

    Example:
        >>> plain((0.123456789, np.array([1, 2])))
        [0.123457, [1, 2]]
    """
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], AttentionMaps):
            found: dict[str, Any] = {}
            for maps in value:
                found[f"{maps.kind}_attention"] = [plain(layer[None]) for layer in maps.weights]
                if maps.kind != "decoder":
                    found["encoder_tokens"] = list(maps.columns)
                if maps.kind != "encoder":
                    found["decoder_tokens"] = list(maps.rows)
            return found
        return [plain(each, digits) for each in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), digits) for field in fields(value)}
    return value
