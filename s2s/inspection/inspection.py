"""What `s2s inspect` finds in a trained model, as numbers and words: the page, the picture and the JSON show it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, UInt8

from s2s.errors import UserError

Kind = Literal["encoder", "decoder", "cross"]
MOST_INSPECTED = 1_024
"""Most pieces of an input: each layer's head has a number for each pair of them."""
_DIGITS = 6
_SHOWN = 3
_WITHOUT = "leave it out"


@dataclass(frozen=True)
class InspectionRequest:
    """What shall be looked into.

    Attributes:
        inputs: one, or two with a word in common; none: an example of a part of the run's corpus.
        part: that part, as its source gives it; None where there are inputs.
        row: of the example, from 0 on.
        split: the name of the part.
        output: what the model shall be taken to have written; its own output when None. Of translations alone.
        layer: of the walk and the picture, from 0 on; the last when negative.
        head: of the walk, from 0 on.
        task: that a text-to-text model shall do, by its name; of inputs without one, the only task.
        word: whose walk it is; when None, the longest, or of two inputs the one that they make most different.
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
        """The example's row of the part.

        Raises:
            UserError: the part has no such row.
        """
        if self.row >= len(self.part):
            raise UserError(f"there is no row {self.row + 1}", "--row", f"name one of 1 to {len(self.part)}")
        return self.part.select([self.row])

    def chosen_layer(self, count: int) -> int:
        """The layer of so many.

        Raises:
            UserError: there is no such layer.
        """
        if self.layer >= count:
            raise UserError(f"there is no layer {self.layer}", "--layer", f"0 to {count - 1} are there")
        return self.layer if self.layer >= 0 else count - 1


@dataclass(frozen=True)
class AttentionMaps:
    """Where pieces look: in the source (`encoder`), in the target (`decoder`), or from there at the source (`cross`).

    The row of a piece holds its shares of what the columns' pieces offer, and sums to one. A target's rows are of what
    is written: where the model looked to write it; the decoder's columns are what it had read by then.
    """

    kind: Kind
    weights: Float[np.ndarray, "layer head row column"]
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True)
class Walk:
    """Scaled dot-product attention of one position in one head, step by step, with the vectors that the model used.

    Attributes:
        layer: from 0 on.
        head: from 0 on.
        word: that it is about.
        place: of its piece among the pieces.
        pieces: all that it can look at.
        query: what its piece asks for.
        keys: what each piece can be found by.
        values: what each piece gives.
        dots: query times key, for each piece.
        scaled: these divided by the root of the vectors' size, and what else the model adds before the softmax.
        weights: the softmax of these.
        read: the mean of the values by these weights.
        difference: the largest between a number of `read` and what the model itself read there, as one kernel.
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
    """One word in two inputs.

    Attributes:
        word: as it is written in the first.
        layers: names of the encoder's layers, the embedding first.
        cosines: between the word's two vectors after each; 1 where they point the same way.
        looked: of each input and attention layer, the words that it looked at most, heads averaged, and their shares.
    """

    word: str
    layers: Sequence[str]
    cosines: Sequence[float]
    looked: Sequence[Sequence[Sequence[tuple[str, float]]]]


@dataclass(frozen=True)
class Positions:
    """The vectors that tell an encoder or a decoder where a token stands, and the dot product of each with each."""

    name: str
    kind: str
    vectors: Float[np.ndarray, "length width"]
    products: Float[np.ndarray, "length length"]


@dataclass(frozen=True)
class Saliency:
    """What the words, or patches, of an input weigh for each answer.

    Attributes:
        method: `gradient x input`, `integrated gradients`, or `attention rollout`, whose shares are never below zero.
        answers: what is explained: the class, or each piece that was written.
        words: that were read.
        weights: above zero where a word speaks for an answer.
        difference: of integrated gradients, the largest between the sum of an answer's weights and the difference that
            it should be, between the scores of the input and of the baseline; None for the other methods.
    """

    method: str
    answers: Sequence[str]
    words: Sequence[str]
    weights: Float[np.ndarray, "answer word"]
    difference: float | None = None


@dataclass(frozen=True)
class InspectedExample:
    """All that was found of one input.

    Attributes:
        source: the text, or the name of the image.
        output: what the model made of it.
        remark: what else is to be said of the output, e.g. its probability.
        attention: a kind for each part of the model that has any.
        saliency: by one method or several.
        walk: where the encoder has scaled dot-product attention.
        image: its pixels, where the input is one; the pieces are then its patches, row by row.
        patches: of an image, how many in a row.
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
    """What was found in a run's model: of one input, or of two with a word in common."""

    run: str
    checkpoint: str
    task: str
    examples: Sequence[InspectedExample]
    word: SameWord | None
    positions: Sequence[Positions]

    def __str__(self) -> str:
        """The gist, for a terminal."""
        lines = [f"{self.run}, checkpoint {self.checkpoint}, task {self.task}"]
        for example in self.examples:
            lines += ["", example.source, f"  → {example.output}" + (f"  ({example.remark})" if example.remark else "")]
            lines += _looks(example) + [line for found in example.saliency for line in _heaviest(found)]
        if self.word:
            told = ", ".join(f"{name} {c:.3f}" for name, c in zip(self.word.layers, self.word.cosines, strict=True))
            lines += ["", f"{self.word.word}: cosine between its vectors in the two: {told}"]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything; an example's `attention` has the arguments of BertViz's views, by their names."""
        return json.dumps(plain(self), ensure_ascii=False) + "\n"


def check_chosen(found: Inspection, focus: InspectionRequest) -> None:
    """Refuses a layer or a head to choose where there is none, whatever shall be shown.

    Where there is a walk, it has done so; of other models, the picture knows layers, and nothing knows heads.

    Raises:
        UserError: one was chosen.
    """
    for example in found.examples:
        if example.walk is not None:
            continue
        if count := max((len(maps.weights) for maps in example.attention), default=0):
            focus.chosen_layer(count)
        elif focus.layer >= 0:
            raise UserError("the model has no attention, and so no layers of it", f"--layer {focus.layer}", _WITHOUT)
        if focus.head:
            raise UserError("the model's encoder has no q, k and v to show", f"--head {focus.head}", _WITHOUT)


def _looks(example: InspectedExample) -> list[str]:
    """Each target piece beside the source piece that the last layer's heads, on average, looked at most."""
    lines = []
    for maps in example.attention:
        if maps.kind == "cross":
            most, wide = maps.weights[-1].mean(axis=0), max(map(len, maps.rows))
            for piece, row in zip(maps.rows, most, strict=True):
                lines.append(f"  {piece:{wide}}  {row.max():4.0%}  {maps.columns[int(row.argmax())]}")
    return lines


def _heaviest(saliency: Saliency) -> list[str]:
    if len(saliency.answers) > 1:
        return []
    order = np.argsort(-np.abs(saliency.weights[0]), kind="stable")[: 2 * _SHOWN]
    words = " · ".join(f"{saliency.words[i]} {saliency.weights[0, i]:+.2f}" for i in order)
    return [f"  {saliency.method}: {words}"]


def bertviz(attention: Sequence[AttentionMaps]) -> dict[str, Any]:
    """The arguments of BertViz's `head_view` and `model_view`: one list for each layer, of `(1, head, row, column)`."""
    found: dict[str, Any] = {}
    for maps in attention:
        found[f"{maps.kind}_attention"] = [plain(layer[None]) for layer in maps.weights]
        if maps.kind != "decoder":
            found["encoder_tokens"] = list(maps.columns)
        if maps.kind != "encoder":
            found["decoder_tokens"] = list(maps.rows)
    return found


def plain(value: Any, digits: int = _DIGITS) -> Any:
    """As JSON knows it; numbers to so many digits."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), digits)
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], AttentionMaps):
            return bertviz(value)
        return [plain(each, digits) for each in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name), digits) for field in fields(value)}
    return value
