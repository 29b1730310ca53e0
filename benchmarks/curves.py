"""Draws a run's curves, from its metrics.jsonl: the picture in the README.

python -m benchmarks.curves runs/multi30k docs/images/multi30k.png
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.keeping import asked, entries


def main() -> None:
    """Reads the run and writes the picture."""
    parser = asked(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("picture", type=Path)
    options = parser.parse_args()
    updates = [e for e in entries(options.run) if "loss" in e]
    validations = [e for e in entries(options.run) if "validation" in e]
    numbers = np.array([e["update"] for e in updates])
    losses = np.array([e["loss"] for e in updates])
    tokens = np.array([e["tokens"] for e in updates])
    # batches of short sentences differ from batches of long ones; an epoch's mean does not
    window = np.ones(123)
    smooth = np.convolve(losses * tokens, window, "valid") / np.convolve(tokens, window, "valid")
    figure = Figure(figsize=(10, 3.6), layout="constrained", dpi=150)
    left, middle, right = figure.subplots(1, 3)
    left.plot(numbers, losses, color="0.85", linewidth=0.5)
    left.plot(numbers[len(window) - 1 :], smooth, color="tab:blue", label="training (with dropout)")
    left.plot(*_curve(validations, "loss"), "o-", color="tab:orange", label="validation")
    left.set(title="loss, nats per token", xlabel="update", ylim=(0, 6))
    left.legend(frameon=False)
    for name, color in (("bleu", "tab:orange"), ("chrf", "tab:green")):
        middle.plot(*_curve(validations, name), "o-", color=color, label={"bleu": "BLEU", "chrf": "chrF2++"}[name])
    middle.set(title="validation, greedy", xlabel="update")
    middle.legend(frameon=False)
    right.plot(numbers, [e["gradient_norm"] for e in updates], color="tab:blue", linewidth=0.5)
    right.set(title="gradient norm", xlabel="update", yscale="log")
    for panel in (left, middle, right):
        panel.spines[["top", "right"]].set_visible(False)
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.picture)


def _curve(validations: list[dict], name: str) -> tuple[list[int], list[float]]:
    return [e["update"] for e in validations], [e["validation"][name] for e in validations]


if __name__ == "__main__":
    main()
