"""Pictures for TensorBoard."""

import textwrap
from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_picture(
    weights: Float[Tensor, "head target source"], source: list[str], target: list[str], title: str
) -> "Figure":
    """Where each head looks: one panel a head, targets downward, sources to the right, dark is much.

    Args:
        weights: of one layer; rows sum to one.
        source: the source pieces.
        target: the target pieces.
        title: whose attention it is.
    """
    # matplotlib takes half a second to import, and only runs that draw need it
    from matplotlib.figure import Figure

    heads = len(weights)
    width = heads * (1.5 + 0.22 * len(source)) + 0.8
    figure = Figure(figsize=(width, 2.0 + 0.22 * len(target)), layout="constrained")
    # a narrow picture has its title in several rows
    figure.suptitle(textwrap.fill(title, max(24, int(11 * width))), fontsize=9, parse_math=False)
    panels = figure.subplots(1, heads, sharey=True, squeeze=False)[0]
    shares = weights.float().cpu().numpy()
    images = [p.imshow(s, cmap="Greys", vmin=0, vmax=1, aspect="auto") for p, s in zip(panels, shares, strict=True)]
    for head, panel in enumerate(panels):
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8, parse_math=False)
        panel.set_yticks(range(len(target)), target, fontsize=8, parse_math=False)
        panel.set_title(f"head {head}", fontsize=8)
        panel.set_xlabel("source pieces", fontsize=8)
    panels[0].set_ylabel("target pieces", fontsize=8)
    bar = figure.colorbar(images[0], ax=panels, fraction=0.02)
    bar.set_label("share of a target piece's attention", fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return figure
