"""What `s2s compare` makes of its words, before anything heavy is loaded."""

from pathlib import Path

import pytest

from s2s.cli.comparing import EXPERIMENTS, Order, check_lone, order
from s2s.errors import UserError


def _order(*words, **options):
    return Order(
        words, *(options.get(k) for k in ("profile", "seeds", "match")), options.get("experiments", ()), None, None
    )


def test_two_models_are_enough():
    planned = order(_order("rnn", "transformer"))
    assert planned.folder == Path("runs/compare-rnn-transformer")
    assert planned.base.name == "compare"
    assert planned.summary.models == ["rnn", "transformer"]
    assert planned.summary.seeds == [1, 2, 3]
    assert planned.summary.experiments == list(EXPERIMENTS)
    assert planned.summary.command == "s2s compare rnn transformer"


def test_words_with_an_equals_sign_change_the_task_or_one_model():
    words = ("lstm", "rnn", "training.updates=500", "lstm.bidirectional=false", "data.train=500")
    planned = order(_order(*words, seeds=1, experiments=("memory", "parallelism")))
    assert planned.base.training.updates == 500
    assert planned.base.data.train == 500
    assert planned.summary.own == {"lstm": {"bidirectional": False}}
    # in the order of the table, whatever the order of the command
    assert planned.summary.experiments == ["parallelism", "memory"]
    assert planned.summary.command.endswith("--seeds 1 --experiment memory --experiment parallelism")


def test_the_standard_profile_takes_real_data():
    planned = order(_order("rnn", "gru", profile="standard"))
    assert planned.base.data.corpus == "bentrevett/multi30k"
    assert planned.summary.seeds == [1, 2, 3]


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("rnn", "tranformer"), {}, r"'tranformer' is not an installed model\n.*did you mean transformer"),
        (("rnn",), {}, r"two different models or more; given: rnn"),
        (("rnn", "rnn"), {}, r"two different models or more; given: rnn, rnn"),
        ((), {}, r"given: none"),
        (("rnn", "gru"), {"experiments": ("gradient",)}, r"--experiment: 'gradient' is no experiment\n.*gradients"),
        (("rnn", "gru", "lstm.dropout=0"), {}, r"lstm is not compared"),
        (("rnn", "gru", "training.update=50"), {}, r"training.update=50.*\n?.*updates"),
    ],
)
def test_a_wrong_word_is_named_with_the_remedy(words, options, message):
    with pytest.raises(UserError, match=message):
        order(_order(*words, **options))


def test_resuming_takes_nothing_else():
    check_lone(_order())
    with pytest.raises(UserError, match="as it was begun"):
        check_lone(_order("rnn"))
    with pytest.raises(UserError, match="as it was begun"):
        check_lone(_order(seeds=2))


def test_every_row_of_the_table_has_an_experiment_that_fills_it():
    from s2s.experiments.catalogue import EXPERIMENTS as catalogue
    from s2s.results import ROWS

    assert set(catalogue) == set(EXPERIMENTS)
    assert {row: name for name, experiment in catalogue.items() for row in experiment.rows} == {
        row: name for row, (_, name) in ROWS.items()
    }
    assert all(experiment.name == name and experiment.question for name, experiment in catalogue.items())
