"""Where a trained model looks while it writes a sentence."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.batches import collate
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.run.loading import LoadedRun, load_run
from s2s.training.pictures import attention_picture


@dataclass(frozen=True)
class Attention:
    """The weights behind one translation.

    Attributes:
        source: the source's pieces, the end included.
        target: the target's pieces, the end included: the row of a piece says where the model looked to write it.
        weights: rows sum to one.
        run: whose they are.
    """

    source: list[str]
    target: list[str]
    weights: Float[Tensor, "layer head target source"]
    run: str = ""

    def __str__(self) -> str:
        """Each target piece beside the source piece that the last layer's heads, on average, looked at most."""
        most = self.weights[-1].mean(dim=0).max(dim=1)
        width = max(len(piece) for piece in self.target)
        return "\n".join(
            f"{piece:{width}}  {share:4.0%}  {self.source[place]}"
            for piece, share, place in zip(self.target, most.values.tolist(), most.indices.tolist(), strict=True)
        )

    def save(self, path: Path, layer: int = -1) -> None:
        """Draws one layer's heads, or writes all weights as JSON.

        The JSON has `source`, `target` and `cross_attention`: one list for each layer, in the shape that BertViz takes,
        `(1, head, target, source)`.

        Args:
            path: a picture (`.png`, `.svg`, `.pdf`) or `.json`.
            layer: which layer is drawn, from 0; the last when negative.

        Raises:
            UserError: another kind of file, or no such layer.
        """
        if path.suffix == ".json":
            found = {"source": self.source, "target": self.target}
            layers = [layer.unsqueeze(0).tolist() for layer in self.weights]
            write_atomically(path, json.dumps(found | {"cross_attention": layers}, ensure_ascii=False) + "\n")
        elif path.suffix in (".png", ".svg", ".pdf"):
            if layer >= len(self.weights):
                raise UserError(
                    f"there is no layer {layer}", where="--layer", remedy=f"0 to {len(self.weights) - 1} are there"
                )
            number = layer if layer >= 0 else len(self.weights) - 1
            title = f"{self.run}: attention of layer {number}"
            attention_picture(self.weights[layer], self.source, self.target, title).savefig(path, dpi=150)
        else:
            raise UserError(
                f"{path.suffix or 'no ending'} is not known",
                where=f"--output {path}",
                remedy=".png, .svg, .pdf or .json",
            )


def look(path: Path, sentence: str, translation: str | None = None, checkpoint: str | None = None) -> Attention:
    """Where a run's model looks while it writes a translation.

    Args:
        path: the run's folder.
        sentence: the source.
        translation: what it shall write; its own translation when None.
        checkpoint: see `load_run`.

    Raises:
        UserError: it is not a run, the sentence is empty or too long, or the model has no attention.
    """
    run = load_run(path, checkpoint)
    if not sentence.strip():
        raise UserError("the sentence is empty", remedy="give one in quotes")
    if translation is None:
        (found,) = run.translator().translate([sentence])
        target = list(found.candidates[0].hypothesis.tokens)
    else:
        target = run.target_tokenizer.encode(translation)
    source = run.source_tokenizer.encode(sentence)
    weights = _weights(run, source, target)
    if not len(weights):
        raise UserError(
            f"a model of kind {run.recipe.model.kind} has no attention", where=str(path), remedy="name another run"
        )
    end = ["</s>"]
    pieces = run.source_tokenizer.pieces(source) + end, run.target_tokenizer.pieces(target) + end
    return Attention(*pieces, weights, f"{path}, checkpoint {run.checkpoint.name}")


def _weights(run: LoadedRun, source: list[int], target: list[int]) -> Tensor:
    for side, pieces, longest in (
        ("sentence", source, run.model.encoder.longest),
        ("translation", target, run.model.decoder.longest),
    ):
        if longest is not None and len(pieces) >= longest:
            raise UserError(
                f"a {side} of {len(pieces)} pieces is longer than the {longest} positions that the model has learned",
                remedy="shorten it",
            )
    batch = collate([source], [target], [0]).to(run.computer.device)
    with torch.no_grad():
        memory = run.model.encoder(batch.source, batch.source_valid)
        return run.model.decoder.attention_weights(memory, batch.target_in)[0].cpu()
