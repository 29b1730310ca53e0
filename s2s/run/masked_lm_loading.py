"""From a run's folder to a masked-language model that is ready to be asked, and how well it names what is masked."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import datasets
import torch

from s2s.data.encoding import Lists, encode_texts
from s2s.data.masked_text import MaskedText
from s2s.data.texts import load_text_split, load_texts
from s2s.data.tokenizers import Tokenizer
from s2s.files import write_atomically
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.installed import module_of
from s2s.recipe.masked_lm import MaskedRecipe
from s2s.recipe.reading import read
from s2s.run.folder import RECIPE, TOKENIZER, check_sections
from s2s.run.held_out import digest_of_texts, split_to_score
from s2s.run.loading import computer_for, find_checkpoint
from s2s.run.tasks import check_task
from s2s.training.checkpoint import load_weights
from s2s.training.devices import Computer, seed_for
from s2s.training.masked_lm import measure
from s2s.training.progress import Meter, silent

TASK = "masked-lm"
SIDE = "text"
"""The name under which the tokenizer is kept."""


@dataclass(frozen=True)
class LoadedMaskedLM:
    """A trained model with all that is needed to use it.

    Attributes:
        checkpoint: the folder its weights came from.
        recipe: what it was trained by, with the caller's overrides.
        model: in evaluation mode, on the computer's device.
        tokenizer: cuts texts into its pieces.
        computer: device and precision.
    """

    checkpoint: Path
    recipe: MaskedRecipe
    model: MaskedLM
    tokenizer: Tokenizer
    computer: Computer


def load_masked_lm(path: Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> LoadedMaskedLM:
    """Loads a trained masked-language model.

    Args:
        path: a run's folder, or that of one checkpoint.
        checkpoint: see `s2s.run.loading.find_checkpoint`.
        overrides: `section.key=value`, for what may change after training: `data`, `device`.

    Raises:
        UserError: it is no run of this task, it has no such checkpoint, or a file is damaged.
    """
    check_task(path, TASK, {})
    check_sections(overrides, ("data", "device"), "a trained model keeps its recipe")
    folder = find_checkpoint(path, checkpoint)
    recipe = read(folder / RECIPE, overrides)
    computer = computer_for(recipe.device, overrides)
    tokenizer = Tokenizer.load(folder / TOKENIZER, SIDE)
    model = build_masked_lm(recipe, tokenizer.size)
    load_weights(model, folder / "model.safetensors")
    return LoadedMaskedLM(folder, recipe, model.to(computer.device).eval(), tokenizer, computer)


def build_masked_lm(recipe: MaskedRecipe, size: int) -> MaskedLM:
    """A model as the recipe describes it, with the initial weights that its seed gives.

    Args:
        recipe: the resolved recipe.
        size: number of pieces that the tokenizer knows.
    """
    torch.manual_seed(seed_for(recipe.seeds.initialization))
    encoder, width = module_of(recipe.model.kind).build_encoder(recipe.model, size + 1)
    return MaskedLM(encoder, width, size, recipe.masking.tie)


def examples_of(recipe: MaskedRecipe, pieces: Lists, tokenizer: Tokenizer) -> MaskedText:
    """Texts as a trainer takes them, as the recipe says.

    Args:
        recipe: the resolved recipe.
        pieces: of the texts.
        tokenizer: that cut them.
    """
    return MaskedText(pieces, tokenizer.size, recipe.masking, recipe.batches, recipe.training.tokens_per_update)


@dataclass(frozen=True)
class MaskedScores:
    """How well the masked pieces of a split are named.

    Attributes:
        run: the run's folder.
        checkpoint: the checkpoint's name.
        split: `test` or `validation`.
        texts: how many.
        masked: pieces that had to be named; which ones is always the same.
        loss: in nats per masked piece.
        accuracy: share of them whose most probable piece was right, in percent.
    """

    run: str
    checkpoint: str
    split: str
    texts: int
    masked: int
    loss: float
    accuracy: float

    def __str__(self) -> str:
        return (
            f"{self.run}, checkpoint {self.checkpoint}, {self.split}: {self.texts:,} texts\n"
            f"  loss {self.loss:.3f} nats per masked piece (perplexity {math.exp(min(self.loss, 50)):.1f}), "
            f"{self.accuracy:.2f} % of {self.masked:,} named right"
        )

    def keep(self) -> None:
        """Writes it into the run's folder, as `evaluation-<split>.json`."""
        write_atomically(Path(self.run) / f"evaluation-{self.split}.json", json.dumps(asdict(self), indent=1) + "\n")

    def main_scores(self) -> dict[str, float]:
        """The values alone, by metric."""
        return {"loss": self.loss, "accuracy": self.accuracy}


def digest_of_text(texts: datasets.Dataset) -> str:
    """What identifies the texts of a corpus."""
    return digest_of_texts(texts, "text")


def evaluate_masked_lm(
    path: Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    meter: Meter = silent,
) -> MaskedScores:
    """Asks a run's model for masked pieces of a split of its corpus.

    Args:
        path: the run's folder.
        split: `test` or `validation`.
        checkpoint: see `s2s.run.loading.find_checkpoint`.
        overrides: `section.key=value`, for `data` and `device`.
        keep: whether this is the run's result, kept in its folder as `evaluation-<split>.json`.
        meter: shows how far it is.

    Raises:
        UserError: it is no run of this task, or its recipe has no such split.
    """
    run = load_masked_lm(path, checkpoint, overrides)
    data = run.recipe.data
    texts = split_to_score(
        path, data, split, lambda: load_text_split(data, split), lambda: load_texts(data), digest_of_text
    )
    examples = examples_of(run.recipe, encode_texts(texts, run.tokenizer), run.tokenizer)
    with meter("measuring", len(examples)) as advance:
        loss, accuracy, masked = measure(run.model, examples, run.computer, advance)
    scores = MaskedScores(str(path), run.checkpoint.name, split, len(texts), masked, loss, accuracy)
    if keep:
        scores.keep()
    return scores
