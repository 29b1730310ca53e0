"""Where a trained model looks while it writes a sentence."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from s2s.data.batches import collate
from s2s.errors import UserError
from s2s.files import write_atomically
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import Loaded
from s2s.tasks.translation.evaluation import translator_of
from s2s.tasks.translation.recipe import Recipe
from s2s.training.drawing import blank

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        `(1, head, target, source)`. The layer counts from 0; the last one is drawn when it is negative.

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


def look(run: Loaded[Recipe, Seq2Seq], sentence: str, translation: str | None = None) -> Attention:
    """Where a model looks while it writes a translation: this one, or its own when None.

    Raises:
        UserError: the sentence is empty or too long, or the model has no attention.
    """
    if not sentence.strip():
        raise UserError("the sentence is empty", remedy="give one in quotes")
    if translation is None:
        (found,) = translator_of(run).translate([sentence])
        target = list(found.candidates[0].hypothesis.tokens)
    else:
        target = run.tokenizers[-1].encode(translation)
    source = run.tokenizers[0].encode(sentence)
    weights = _weights(run, source, target)
    if not len(weights):
        raise UserError(
            f"a model of kind {run.recipe.model.kind} has no attention", where=str(run.path), remedy="name another run"
        )
    end = ["</s>"]
    pieces = run.tokenizers[0].pieces(source) + end, run.tokenizers[-1].pieces(target) + end
    return Attention(*pieces, weights, f"{run.path}, checkpoint {run.checkpoint.name}")


def _weights(run: Loaded[Recipe, Seq2Seq], source: list[int], target: list[int]) -> Tensor:
    for side, pieces, longest in (
        ("sentence", source, run.model.encoder.longest),
        ("translation", target, run.model.decoder.longest),
    ):
        if longest is not None and len(pieces) >= longest:
            raise UserError(
                f"a {side} of {len(pieces)} pieces is longer than the {longest} positions that the model has learned",
                remedy="shorten it",
            )
    return weights_between(run.model, source, target, run.computer.device).cpu()


def weights_between(
    model: Seq2Seq, source: list[int], target: list[int], device: torch.device
) -> Float[Tensor, "layer head target source"]:
    """Where a model looks while it writes the pieces of a target, its end included."""
    batch = collate([source], [target], [0]).to(device)
    with torch.no_grad():
        memory = model.encoder(batch.source, batch.source_valid)
        return model.decoder.attention_weights(memory, batch.target_in)[0]


def attention_picture(
    weights: Float[Tensor, "head target source"], source: list[str], target: list[str], title: str
) -> "Figure":
    """Where each head of a layer looks: one panel a head, targets downward, sources to the right, dark is much."""
    heads = len(weights)
    width = heads * (1.5 + 0.22 * len(source)) + 0.8
    figure = blank(width, 2.0 + 0.22 * len(target))
    # a narrow picture has its title in several rows
    figure.suptitle(textwrap.fill(title, max(24, int(11 * width))), fontsize=9, parse_math=False)
    panels = figure.subplots(1, heads, sharey=True, squeeze=False)[0]
    panels[0].set_yticks(range(len(target)), target, fontsize=8, parse_math=False)
    shares = weights.float().cpu().numpy()
    images = [p.imshow(s, cmap="Greys", vmin=0, vmax=1, aspect="auto") for p, s in zip(panels, shares, strict=True)]
    for head, panel in enumerate(panels):
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8, parse_math=False)
        panel.set_title(f"head {head}", fontsize=8)
        panel.set_xlabel("source pieces", fontsize=8)
    panels[0].set_ylabel("target pieces", fontsize=8)
    bar = figure.colorbar(images[0], ax=panels, fraction=0.02)
    bar.set_label("share of a target piece's attention", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
