"""Best checkpoint, early stopping, and metrics that stay at 0."""

import pytest

from s2s.training.validation import Validation, count_without_improvement, is_stuck_at_zero


def _validations(*values_and_losses: tuple[float, float], lower_is_better: bool = False) -> list[Validation]:
    return [Validation(update, *row, lower_is_better) for update, row in enumerate(values_and_losses, start=1)]


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([], 0),
        ([(1.0, 3.0)], 0),
        ([(1.0, 3.0), (2.0, 4.0), (1.5, 1.0), (1.9, 1.0)], 2),
        # a tie with a lower loss is an improvement, one with an equal or higher loss is not
        ([(0.0, 3.0), (0.0, 2.0), (0.0, 1.0)], 0),
        ([(0.0, 3.0), (0.0, 2.0), (0.0, 2.5), (0.0, 2.0)], 2),
        # a lower loss does not make up for a lower score
        ([(5.0, 3.0), (4.0, 1.0)], 1),
    ],
)
def test_validation_count_without_improvement(rows, count):
    assert count_without_improvement(_validations(*rows)) == count
    # the same with an error rate, which improves as it falls
    errors = [(100 - value, loss) for value, loss in rows]
    assert count_without_improvement(_validations(*errors, lower_is_better=True)) == count


@pytest.mark.parametrize(
    ("rows", "stuck"),
    [
        ([(0.0, 3.0)], False),
        ([(0.0, 3.0), (0.0, 2.0)], True),
        ([(0.0, 3.0), (0.0, 2.0), (0.0, 1.0)], False),
        ([(0.0, 3.0), (0.0, 3.5)], False),
        ([(0.0, 3.0), (0.1, 2.0)], False),
    ],
)
def test_validation_is_stuck_at_zero(rows, stuck):
    assert is_stuck_at_zero(_validations(*rows)) == stuck
    # 0 is the best error rate
    assert not is_stuck_at_zero(_validations(*rows, lower_is_better=True))
