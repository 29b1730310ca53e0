"""Pictures for TensorBoard."""

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_picture(weights: Float[Tensor, "head target source"], source: list[str], target: list[str]) -> "Figure":
    """Where each head looks: one panel a head, targets downward, sources to the right, dark is much.

    Args:
        weights: of one layer; rows sum to one.
        source: the source pieces.
        target: the target pieces.
    """
    # matplotlib takes half a second to import, and only runs that draw need it
    from matplotlib.figure import Figure

    heads = len(weights)
    figure = Figure(figsize=(heads * (1.5 + 0.22 * len(source)), 1.5 + 0.22 * len(target)), layout="constrained")
    for head, panel in enumerate(figure.subplots(1, heads, sharey=True, squeeze=False)[0]):
        panel.imshow(weights[head].float().cpu().numpy(), cmap="Greys", vmin=0, vmax=1, aspect="auto")
        panel.set_xticks(range(len(source)), source, rotation=90, fontsize=8, parse_math=False)
        panel.set_yticks(range(len(target)), target, fontsize=8, parse_math=False)
        panel.set_title(f"head {head}", fontsize=8)
    return figure
