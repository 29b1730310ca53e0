"""Induction test: the loss of repeated random tokens (Olsson et al. 2022).

A sequence of random tokens is unpredictable at first. In its repetition, each token follows the same token as before: a
model with induction heads, or with a recurrent state that stores the sequence, predicts it.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from s2s.data.tokenizers import BOS, SPECIAL_TOKENS
from s2s.errors import UserError
from s2s.models.language_model import LanguageModel
from s2s.tasks.base import save_probe
from s2s.tasks.figures import recall_picture
from s2s.tasks.language_model.generation import LanguageRun
from s2s.tasks.language_model.scoring import nats_of
from s2s.training import figures
from s2s.training.device import DeviceContext

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAME = "probe-induction"
_ROWS = 16


@dataclass(frozen=True)
class Recall:
    """Loss of random tokens at each position, at first and when repeated.

    Attributes:
        length: Number of random tokens in a sequence.
        pieces: Size of the vocabulary without special tokens.
        first: Mean loss at each position of the first occurrence, in nats.
        second: Mean loss at each position of the repetition, in nats.
        lost: Reason why the result was not saved; empty if it was saved, or was not to be saved.
    """

    length: int
    sequences: int
    pieces: int
    first: list[float]
    second: list[float]
    lost: str = ""

    @property
    def difference(self) -> float:
        """Mean loss of repeated tokens minus that of their first occurrence.

        Below zero, the model recalls them. The first position is left out, because the start of the repetition is
        unpredictable.
        """
        return float(np.mean(self.second[1:]) - np.mean(self.first[1:]))

    def __str__(self) -> str:
        return (
            f"{self.sequences} sequences of {self.length} random tokens, each twice: "
            f"{np.mean(self.first[1:]):.2f} nats per token the first time, {np.mean(self.second[1:]):.2f} the second: "
            f"{self.difference:+.2f} (guessing among {self.pieces:,} tokens: {math.log(self.pieces):.2f})"
            + (f"\nshown, but not kept: {self.lost}" if self.lost else "")
        )

    def picture(self) -> "Figure":
        """Draw both losses by position."""
        return recall_picture(self.first, self.second, math.log(self.pieces))


def recall(
    model: LanguageModel, size: int, length: int, sequences: int, seed: int, device_context: DeviceContext
) -> Recall:
    """Measure the loss of sequences of different random tokens, and of their repetition.

    Args:
        size: Size of the vocabulary, special tokens included.
        length: Number of random tokens in a sequence.
    """
    model.eval()
    chance, pieces = np.random.default_rng(seed), np.arange(len(SPECIAL_TOKENS), size)
    rows = np.stack([chance.choice(pieces, length, replace=False) for _ in range(sequences)])
    tokens = torch.from_numpy(np.concatenate((np.full((sequences, 1), BOS), rows, rows), axis=1))
    found = []
    with torch.inference_mode(), device_context.mixed_precision():
        for part in tokens.split(_ROWS):
            part = part.to(model.projection.weight.device)
            states, following = model(part[:, :-1]).flatten(0, 1), part[:, 1:].flatten()
            found.append(nats_of(model, states, following).view(len(part), -1).cpu().double())
    losses = torch.cat(found).mean(dim=0).tolist()
    return Recall(length, sequences, len(pieces), losses[:length], losses[length:])


def probe(run: LanguageRun, length: int, sequences: int = 64, seed: int = 1) -> Recall:
    """Run the induction test with sequences of `length` random tokens; save JSON and PNG in the run's folder."""
    size, longest = run.tokenizers[0].size, run.model.decoder.max_positions
    most = min(size - len(SPECIAL_TOKENS), size if longest is None else longest // 2)
    if length > most:
        raise UserError(
            f"{length} random tokens, twice, do not fit: the vocabulary has {size - len(SPECIAL_TOKENS):,} tokens"
            + ("" if longest is None else f", and the model has {longest:,} positions"),
            where=f"{run.path}: --induction",
            remedy=f"set --induction {most} or lower",
        )
    found = recall(run.model, size, length, sequences, seed, run.device_context)
    kept = {"run": str(run.path), "checkpoint": run.checkpoint.name, "seed": seed, "difference": found.difference}
    kept |= asdict(found)
    del kept["lost"]
    files = {
        f"{_NAME}.json": json.dumps(kept, indent=1) + "\n",
        f"{_NAME}.png": figures.render_png(found.picture()),
    }
    return replace(found, lost=save_probe(run, files))
