"""Figures of evaluations show the measured values."""

import io

import numpy as np
import pytest

from s2s.evaluation.classification import calibration
from s2s.tasks.figures import (
    Curve,
    class_counts_picture,
    confusion_picture,
    curves_picture,
    images_picture,
    lengths_picture,
    reliability_picture,
)

# would be a formula, or an error, to matplotlib
ODD = ["$$", "\\frac{", "_a"]


def _drawn(figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def test_figure_confusion_colours_are_shares_of_the_true_class():
    matrix = np.array([[8, 2, 0], [0, 0, 0], [10, 10, 20]])
    figure = confusion_picture(matrix, ODD)
    panel = figure.axes[0]
    assert panel.images[0].get_array().tolist() == [[0.8, 0.2, 0], [0, 0, 0], [0.25, 0.25, 0.5]]
    assert [text.get_text() for text in panel.texts] == [str(n) for n in matrix.flat]
    assert _drawn(figure)


@pytest.mark.parametrize("spacing", ["width", "count"])
def test_figure_reliability_shows_the_bins(spacing):
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.55, 0.45], [1.0, 0.0]])
    found = calibration(np.array([0, 1, 0, 0]), probabilities, bins=4, spacing=spacing)
    figure = reliability_picture(found)
    line = figure.axes[0].lines[1]
    assert line.get_xdata().tolist() == [each.confidence for each in found.bins]
    assert line.get_ydata().tolist() == [each.accuracy.value for each in found.bins]
    assert sum(patch.get_height() for patch in figure.axes[1].patches) == 4
    assert _drawn(figure)


def test_figure_curves_have_a_panel_for_accuracy_where_it_was_measured():
    training = Curve("training", [1, 2], [3.0, 2.0])
    both = curves_picture([training, Curve("test", [2], [2.5], [60.0])])
    assert [len(panel.lines) for panel in both.axes] == [2, 1]
    assert len(curves_picture([training]).axes) == 1
    assert _drawn(both)


def test_figure_every_length_is_in_the_histogram_and_what_is_cut_is_counted():
    lengths = np.array([1, 1, 129, 130, 900])
    figure = lengths_picture(lengths, max_length=129)
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == 5
    assert "2 longer than 129" in figure.axes[0].get_title()
    assert _drawn(lengths_picture(np.array([], dtype=int)))


def test_figure_class_counts_and_images_are_drawn():
    assert _drawn(class_counts_picture(dict(zip(ODD, (1, 2, 3), strict=True))))
    grey = np.zeros((3, 1, 4, 4), dtype=np.uint8)
    assert len(images_picture(grey, ODD, across=2).axes) == 4
    assert _drawn(images_picture(np.repeat(grey, 3, axis=1), ODD))


@pytest.mark.parametrize(("classes", "every"), [(100, 1), (101, 2), (300, 3)])
def test_figure_thousands_of_classes_have_a_picture_that_fits_into_memory(classes, every):
    names = [f"c{n}" for n in range(classes)]
    confusion = confusion_picture(np.zeros((classes, classes), dtype=np.int64), names)
    counts = class_counts_picture(dict.fromkeys(names, 1))
    for figure, size in ((confusion, 0.42), (counts, 0.24)):
        panel = figure.axes[0]
        assert [label.get_text() for label in panel.get_yticklabels()] == names[::every]
        assert size * min(classes, 100) < figure.get_figheight() < size * min(classes, 100) + 2
    assert len(counts.axes[0].patches) == classes
