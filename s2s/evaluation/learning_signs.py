"""Signs in a training log: overfitting, unfinished training, wrong learning rate."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from s2s.evaluation.gates import LEARNING, POINTS, converged, slope_per_doubling
from s2s.evaluation.signs import Finding, plain_sign

_WINDOW = 20
_AFTER = 10
_LEAPS = 2
_GUESSING = 0.9


@dataclass(frozen=True)
class Learning:
    """Losses of a training log: training losses and tokens by step from `first`, and validations (`looks`)."""

    losses: Sequence[float]
    tokens: Sequence[int]
    looks: Sequence[tuple[int, Mapping[str, float]]]
    first: int = 1

    @staticmethod
    def of(entries: Sequence[Mapping]) -> "Learning":
        """Read the entries of a run's metrics.jsonl; non-finite losses are skipped."""
        updates = [entry for entry in entries if "loss" in entry and math.isfinite(entry["loss"])]
        looks = [(entry["update"], entry["validation"]) for entry in entries if "validation" in entry]
        looks = [look for look in looks if math.isfinite(look[1].get("loss", math.nan))]
        first = updates[0]["update"] if updates else 1
        return Learning([u["loss"] for u in updates], [u["tokens"] for u in updates], looks, first)

    def validation(self) -> tuple[list[float], list[float]]:
        """Return the training tokens and the loss of each validation."""
        tokens = [float(sum(self.tokens[: update - self.first + 1])) for update, _ in self.looks]
        return tokens, [scores["loss"] for _, scores in self.looks]

    def training_before(self, update: int) -> float:
        """Return the training loss measured at a validation, else the mean of the preceding steps."""
        measured = [scores.get("training_loss") for at, scores in self.looks if at == update]
        if measured and measured[0] is not None:
            return measured[0]
        last = update - self.first + 1
        return statistics.fmean(self.losses[max(0, last - _WINDOW) : last] or [float("nan")])


def learning_signs(log: Learning, chance_loss: float | None) -> list[Finding]:
    """Check all signs of a training log; `chance_loss` is that of predicting frequencies."""
    signs = [_overfitting(log), _still_learning(log), _unstable(log)]
    return signs if chance_loss is None or not log.losses else [*signs, *_near_chance(log, chance_loss)]


def _overfitting(log: Learning) -> Finding:
    """Check for overfitting: the validation loss rises while the training loss falls."""
    name, remedy = (
        "over-fitted",
        "stop early (validation.patience=3, validation.metric=loss), raise model.dropout or training.weight_decay, or "
        "get more training data; the checkpoint in use is the best one by validation.metric",
    )
    _, losses = log.validation()
    if len(losses) < 2:
        return plain_sign(name, False, "fewer than two validations", 0.0, "", remedy)
    best, last = int(np.argmin(losses)), len(losses) - 1
    rise = losses[last] - losses[best]
    fall = log.training_before(log.looks[best][0]) - log.training_before(log.looks[last][0])
    most = max(0.05, 0.05 * losses[best])
    said = (
        f"the validation loss ended {rise:.3f} nats above its lowest ({losses[best]:.3f}, update "
        f"{log.looks[best][0]:,}), the training loss fell by {fall:.3f} since"
    )
    threshold = f"it rose by {most:.2f} nats (5 % of the loss; less may be chance) while the training loss fell"
    return plain_sign(name, rise > most and fall > 0, said, rise, threshold, remedy)


def _still_learning(log: Learning) -> Finding:
    """Check whether the loss still falls at the end of training.

    Uses the validation loss, or the training loss with fewer than three validations.
    """
    tokens, losses = log.validation()
    of_what = "validation"
    if len(losses) < 3:
        tokens, losses, of_what = *_windows(log), "training"
    slope = slope_per_doubling(tokens, losses)
    gate = converged(tokens, losses)
    said = gate.sentence.replace("its loss", f"its {of_what} loss")
    threshold = (
        f"with twice the tokens it falls by {LEARNING:g} nats, or the probability of the right answer rises by "
        f"{POINTS:g} percentage point (longer training is worthwhile)"
    )
    remedy = "train for at least twice as long: s2s train RUN --resume training.updates=N"
    found = slope is not None and not gate.passed
    return plain_sign("not trained to the end", found, said, -(slope or 0.0), threshold, remedy)


def _unstable(log: Learning) -> Finding:
    """Check for an unstable training loss: jumps, or an end far above the minimum.

    A single high loss is no sign: batches contain examples of one length, and the longest are the hardest.
    """
    leaps, i = 0, _WINDOW
    while i + _AFTER <= len(log.losses):
        before, after = log.losses[i - _WINDOW : i], log.losses[i : i + _AFTER]
        leapt = _far_above(statistics.median(after), statistics.median(before))
        leaps += leapt
        # The way down is not a second jump.
        i += _WINDOW if leapt else 1
    means = [statistics.fmean(log.losses[i : i + _WINDOW]) for i in range(max(0, len(log.losses) - _WINDOW + 1))]
    worse = bool(means) and _far_above(means[-1], min(means))
    ended = f"; it ended at {means[-1]:.2f} nats, and its minimum is {min(means):.2f}" if worse else ""
    said = f"the training loss jumped and stayed high {leaps} times in {len(log.losses):,} updates{ended}"
    threshold = (
        f"it jumps {_LEAPS} times, by 0.5 nats and 10 % for {_AFTER} updates, or ends as far above its minimum "
        "(single hard batches do not count)"
    )
    remedy = "lower training.learning_rate, raise training.warmup, set training.clip=1"
    return plain_sign("rate too high", leaps >= _LEAPS or worse, said, leaps, threshold, remedy)


def _near_chance(log: Learning, chance_loss: float) -> list[Finding]:
    """Check whether the loss stays near chance (`learned nothing`), or still falls toward it (`rate too low`)."""
    # Overfitting is learning, too, even if it does not generalize: the training loss counts.
    loss = min([statistics.fmean(log.losses[-_WINDOW:]), *log.validation()[1]])
    tokens, losses = _windows(log)
    slope = slope_per_doubling(tokens, losses)
    falling, level = slope is not None and -slope >= LEARNING, slope is not None and -slope < LEARNING
    at_it = loss >= _GUESSING * chance_loss
    said = f"the best loss is {loss:.3f} nats; predicting the frequencies of the answers gives {chance_loss:.3f}"
    moving = "; it still falls" if falling else "; it no longer falls"
    if slope is None:
        moving = "; too few updates to tell if it falls"
    threshold = f"it is above {_GUESSING:.0%} of that (the input hardly counts)"
    measured = said + (moving if at_it else "")
    nothing = "lower training.learning_rate and raise training.warmup; are texts and answers of data.train misaligned?"
    slow = "raise training.learning_rate, lower training.warmup, raise training.updates"
    return [
        plain_sign("learned nothing", at_it and level, measured, loss, f"{threshold}; and does not fall", nothing),
        plain_sign("rate too low", at_it and falling, measured, loss, f"{threshold}; and still falls", slow),
    ]


def _far_above(loss: float, usual: float) -> bool:
    # The same threshold as the divergence check of training.
    return not loss <= usual + max(0.5, 0.1 * usual)


def _windows(log: Learning, count: int = 8) -> tuple[list[float], list[float]]:
    """Return tokens and mean training loss of windows in the second half of training."""
    half = np.arange(len(log.losses))[len(log.losses) // 2 :]
    parts = [part for part in np.array_split(half, count) if len(part)]
    cumulated = np.cumsum(log.tokens) if log.tokens else np.zeros(0)
    return [float(cumulated[p[len(p) // 2]]) for p in parts], [float(np.mean(np.array(log.losses)[p])) for p in parts]
