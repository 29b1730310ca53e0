"""Figures of an inspection: attention in grayscale, saliency in blue and orange."""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from s2s.inspection.inspection import AttentionMaps, InspectedExample, Inspection, InspectionRequest, Saliency
from s2s.training.figures import (
    ATTENTION_AXES,
    diverging,
    draw_heads,
    heads_height,
    heads_width,
    new_figure,
    show_image,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase

_SMALL = 8
# Figures grow with both texts, and hundreds of tokens are unreadable.
_DRAWN = 40
# Width in inches above which maps are stacked.
_WIDE = 22


@dataclass(frozen=True)
class _Band:
    """A row of panels: its size in inches, and the function that draws it."""

    width: float
    height: float
    draw: Callable[[Any], None]


def inspection_picture(inspection: Inspection, focus: InspectionRequest) -> "Figure":
    """Draw one layer's attention heads and the saliency; long texts are truncated.

    Raises:
        UserError: The layer does not exist.
    """
    whose = f"{inspection.run}, checkpoint {inspection.checkpoint}"
    bands = [band for example in inspection.examples for band in _bands(example, focus, whose)]
    figure = new_figure(max(band.width for band in bands), sum(band.height for band in bands))
    parts = figure.subfigures(len(bands), 1, squeeze=False, height_ratios=[band.height for band in bands])[:, 0]
    for part, band in zip(parts, bands, strict=True):
        band.draw(part)
    return figure


def _bands(example: InspectedExample, focus: InspectionRequest, whose: str) -> list[_Band]:
    deepest = max((len(maps.weights) for maps in example.attention), default=0)
    layer = focus.chosen_layer(deepest) if deepest else 0
    # A part with fewer layers uses its last one.
    layers = [min(layer, len(maps.weights) - 1) for maps in example.attention]
    if example.image is not None:
        return [_patches(example, layers, whose)]
    bands = [_attention(maps, layer, whose) for maps, layer in zip(example.attention, layers, strict=True)]
    if len(example.saliency[0].answers) > 1:
        title = "saliency of each word for each output token"
        band = _weights(example.saliency, title)
        wide = band.width > _WIDE
        return [*bands, *([_weights([found], title) for found in example.saliency] if wide else [band])]
    return [
        *bands,
        _weights([_join_methods(example.saliency)], f"{example.source} → {example.output}: saliency of each word"),
    ]


def _attention(maps: AttentionMaps, layer: int, whose: str) -> _Band:
    rows, columns = maps.rows[:_DRAWN], maps.columns[:_DRAWN]
    shares = maps.weights[layer, :, : len(rows), : len(columns)]
    name = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "cross-attention"}
    title = f"{whose}: {name[maps.kind]} of layer {layer}"
    if len(maps.rows) > _DRAWN or len(maps.columns) > _DRAWN:
        title += f", the first {_DRAWN} tokens"
    said = (*ATTENTION_AXES[maps.kind], title)
    return _Band(
        heads_width(len(shares), len(columns)),
        heads_height(len(rows)),
        lambda f: draw_heads(f, shares, rows, columns, said),
    )


def _join_methods(found: Sequence[Saliency]) -> Saliency:
    """Combine methods as rows, each scaled to its maximum, because their units differ."""
    rows = np.concatenate([each.weights / (np.abs(each.weights).max() or 1.0) for each in found])
    return Saliency("each as a share of its largest", [each.method for each in found], found[0].words, rows)


def _weights(methods: Sequence[Saliency], title: str) -> _Band:
    """Draw the maps of methods side by side, with color scales symmetric around zero."""
    words, answers = list(methods[0].words[:_DRAWN]), list(methods[0].answers[:_DRAWN])
    width = 1.2 + len(methods) * (1.4 + 0.26 * len(words))

    def draw(figure: "FigureBase") -> None:
        """Draw answers as rows and words as columns."""
        figure.suptitle(textwrap.fill(title, max(24, int(11 * width))), fontsize=9, parse_math=False)
        panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
        panels[0].set_yticks(range(len(answers)), answers, fontsize=_SMALL, parse_math=False)
        for panel, found in zip(panels, methods, strict=True):
            weights = found.weights[:_DRAWN, :_DRAWN]
            end = float(np.abs(weights).max()) or 1.0
            image = panel.imshow(weights, cmap=diverging(), vmin=-end, vmax=end, aspect="auto")
            panel.set_xticks(range(len(words)), words, rotation=90, fontsize=_SMALL, parse_math=False)
            panel.set_title(found.method, fontsize=_SMALL)
            bar = figure.colorbar(image, ax=panel, fraction=0.04)
            bar.ax.tick_params(labelsize=_SMALL)

    return _Band(width, 2.1 + 0.22 * len(answers), draw)


def _patches(example: InspectedExample, layers: Sequence[int], whose: str) -> _Band:
    """Draw the image, each head's attention from the selected patch, and the saliency.

    Args:
        layers: Layer of each of the example's attention maps.
    """
    across, image = example.patches, example.image
    maps: list[tuple[str, np.ndarray, bool]] = []
    place = example.walk.place if example.walk else 0
    for found, layer in zip(example.attention, layers, strict=True):
        weights = found.weights[layer, :, :, -across * across :]
        if found.kind == "encoder":
            maps += [(f"layer {layer}, head {head}", row, False) for head, row in enumerate(weights[:, place])]
        elif found.kind == "cross":
            means = weights[:, :_DRAWN].mean(axis=0)
            maps += [(f"for {piece}", row, False) for piece, row in zip(found.rows, means, strict=False)]
    # Saliency is additive, so the values of a caption's tokens are summed.
    maps += [(found.method, found.weights[:, -across * across :].sum(axis=0), True) for found in example.saliency]
    columns = 4
    rows = -(-(len(maps) + 1) // columns)
    looking = f"; attention from patch {example.walk.word}" if example.walk else ""
    remark = f" ({example.remark})" if example.remark else ""
    title = f"{whose}: {example.source} → {example.output}{remark}{looking}"

    def draw(figure: "FigureBase") -> None:
        """Draw the panels from left to right, the image first."""
        figure.suptitle(textwrap.fill(title, 90), fontsize=9, parse_math=False)
        panels = list(figure.subplots(rows, columns, squeeze=False).flat)
        for panel in panels:
            panel.set_axis_off()
        pixels = image if image is not None else np.zeros((1, 1, 1))
        show_image(panels[0], pixels)
        panels[0].set_title("image", fontsize=_SMALL)
        for panel, (name, weights, signed) in zip(panels[1:], maps, strict=False):
            end = float(np.abs(weights).max()) or 1.0
            colours = {"cmap": diverging() if signed else "Greys", "vmin": -end if signed else 0, "vmax": end}
            panel.imshow(weights.reshape(across, across), **colours)
            panel.set_title(name, fontsize=_SMALL, parse_math=False)

    return _Band(columns * 1.9, rows * 2.0 + 0.6, draw)
