"""What every contestant is given: one shape of model, one corpus cut into pieces, one budget.

Read with the standard library alone: it is loaded in every contestant's environment.
"""

import json
from dataclasses import dataclass
from pathlib import Path

WIDTH, HEADS, INNER, LAYERS = 256, 4, 1024, 3
DROPOUT, SMOOTHING, CLIP, RATE = 0.1, 0.1, 1.0, 5e-4
BEAM, BATCH, PENALTY = 5, 64, 0.0
"""Of decoding. Toolkits have different length penalties: without one, all search for the same, the most probable."""
EPSILON = 1e-6
"""Guard of the norms against division by zero, as JoeyNMT has it in its code."""
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
"""The first pieces of the vocabulary, in this order."""
SIDES = ("en", "de")

Pair = tuple[str, str]


@dataclass(frozen=True)
class Task:
    """A folder of texts, a sentence a line, its pieces apart by a space; the vocabulary has a piece a line."""

    folder: Path

    @property
    def vocabulary(self) -> Path:
        """All pieces but the special ones."""
        return self.folder / "vocabulary.txt"

    @property
    def pieces(self) -> list[str]:
        """The names of all pieces, by number."""
        return [*SPECIALS, *lines(self.vocabulary)]

    def side(self, part: str, side: str) -> Path:
        """The text of a part, `train` or `test`, in one language."""
        return self.folder / f"{part}.{side}"

    @property
    def pairs(self) -> list[Pair]:
        """The training pairs."""
        source, target = (lines(self.side("train", side)) for side in SIDES)
        return list(zip(source, target, strict=True))

    @property
    def tokens(self) -> int:
        """Positions of a batch at most: sentences times the longest of them, on the longer side."""
        return json.loads(self.planned.read_text(encoding="utf-8"))["tokens"]

    @property
    def batches(self) -> list[list[int]]:
        """Rows of pairs that make batches of similar length, for those that have none of their own."""
        return json.loads(self.planned.read_text(encoding="utf-8"))["batches"]

    @property
    def planned(self) -> Path:
        """The file of these two."""
        return self.folder / "batches.json"

    @property
    def run(self) -> Path:
        """The run of s2s that is decoded with."""
        return self.folder / "run"

    def export(self, quantization: str) -> Path:
        """That run as CTranslate2 loads it."""
        return self.folder / f"ctranslate2-{quantization}"

    @property
    def texts(self) -> Path:
        """The sources of the test set as people write them."""
        return self.folder / "texts.txt"

    @property
    def weights(self) -> Path:
        """The trained weights of s2s, as numpy keeps them."""
        return self.folder / "weights.npz"


def lines(path: Path) -> list[str]:
    """The lines of a text, whatever else in it Python would take for a line's end."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
