"""Arguments of `s2s compare`."""

import re
import shlex
from pathlib import Path

import pytest

from s2s.comparison import engine
from s2s.comparison.candidate_names import file_name, kind_of
from s2s.comparison.plans import PLANS, TABLES, experiments_of, plan_of
from s2s.comparison.request import Order, check_resumes, extended, order
from s2s.errors import UserError
from s2s.recipe.schema import NAME_PATTERN


def _order(*words, **options):
    paths = {key: Path(value) for key, value in options.items() if key in ("recipe", "out", "task")}
    return Order(words, **(options | paths))


def test_compare_two_models_are_enough():
    planned = order(_order("rnn", "transformer"))
    assert planned.folder == Path("runs/compare-rnn-transformer")
    assert planned.base.name == "compare"
    assert planned.summary.models == ["rnn", "transformer"]
    assert planned.summary.seeds == [1, 2, 3]
    assert planned.summary.experiments == list(PLANS["quick"].experiments)
    assert planned.summary.command == "s2s compare rnn transformer"


def test_compare_words_with_an_equals_sign_change_the_task_or_one_model():
    words = ("lstm", "rnn", "training.updates=500", "lstm.bidirectional=false", "data.train=500")
    planned = order(_order(*words, seeds=1, experiments=("memory", "parallelism")))
    assert planned.base.training.updates == 500
    assert planned.base.data.train == 500
    assert planned.summary.own == {"lstm": {"bidirectional": False}}
    # in the order of the table, whatever the order of the command
    assert planned.summary.experiments == ["parallelism", "memory"]
    assert planned.summary.command.endswith("--seeds 1 --experiment memory --experiment parallelism")


def test_compare_costs_name_settings_that_leave_out_the_tuning_of_depths(tmp_path):
    def costs(*words, experiment="memory"):
        models = ("rnn", "rnn:dropout=0.3", "transformer")
        planned = order(_order(*models, "data.train=500", *words, experiments=(experiment,)))
        return engine.describe_costs(tmp_path / "costs", planned.summary, planned.base)

    *_, hint = costs().splitlines()
    assert hint.startswith("tuning selects the number of layers; to skip it, set: rnn.encoder_layers=2 ")
    assert costs(*hint.rpartition(": ")[2].split()).startswith("memory: 3 measurements")
    # gradients need learning rates
    assert "left out" not in costs(experiment="gradients")


ROPE = "transformer:encoder_positions=rope,decoder_positions=rope"


def test_compare_contender_carries_settings_and_those_of_its_model_hold_where_it_has_none():
    words = ("transformer", ROPE, "transformer:dropout=0.3", "rnn", "transformer.dropout=0.2", "data.train=500")
    planned = order(_order(*words))
    assert planned.summary.models == ["transformer", ROPE, "transformer:dropout=0.3", "rnn"]
    assert planned.summary.own == {
        "transformer": {"dropout": 0.2},
        ROPE: {"dropout": 0.2, "encoder_positions": "rope", "decoder_positions": "rope"},
        "transformer:dropout=0.3": {"dropout": 0.3},
    }
    assert planned.base.data.train == 500
    # a colon in a value makes no contender
    files = ("data.corpus=files", "data.root=a:b")
    assert order(_order("rnn", "gru", *files)).base.data.root.endswith("a:b")
    assert len(planned.folder.name.encode()) < 255


def test_compare_contender_is_part_of_a_file_name_that_no_other_has():
    names = [
        "rnn",
        ROPE,
        "transformer:a=b,c=d",
        "transformer:a=b-c=d",
        "transformer:a-b=c,d",
        "transformer:" + 300 * "x",
    ]
    files = [file_name(name) for name in names]
    assert files[0] == "rnn"
    assert len(set(files)) == len(names)
    assert all(re.fullmatch(NAME_PATTERN, name) and len(name) < 80 for name in files)
    assert {kind_of(name) for name in names[1:]} == {"transformer"}


@pytest.mark.parametrize(
    ("profile", "recipe", "seeds"),
    [("quick", "compare", 3), ("lecture", "compare_lecture", 5), ("definitive", "compare_multi30k", 5)],
)
def test_compare_profile_gives_questions_seeds_and_data_and_the_command_has_the_last_word(profile, recipe, seeds):
    planned = order(_order("rnn", "gru", profile=profile))
    assert planned.base.name == recipe
    assert planned.summary.seeds == list(range(1, seeds + 1))
    left_out = [name for name in experiments_of("translation") if name not in planned.summary.experiments]
    trained = ["bottleneck", "capacity", "initialization", "length-generalization", "positions", "quality", "scaling"]
    trained.append("transfer")
    assert sorted(left_out) == {"quick": trained, "lecture": ["scaling"], "definitive": []}[profile]
    asked = order(_order("rnn", "gru", profile=profile, seeds=2, experiments=("quality",)))
    assert (asked.summary.seeds, asked.summary.experiments) == ([1, 2], ["quality"])


def test_profile_lists_what_it_leaves_out_with_reasons():
    plan = plan_of("translation", "quick")
    assert plan.beyond(["memory", "quality"]) == ["quality"]
    assert plan.why
    assert set(plan.experiments) < set(experiments_of("translation"))
    for task, profile in (("translation", "definitive"), ("classification", "quick")):
        assert plan_of(task, profile).beyond(experiments_of(task)) == []


def test_compare_classification_task_has_a_table_and_a_folder_of_its_own():
    planned = order(_order("lstm", "transformer", "training.updates=900", "lstm.bidirectional=false", task="ag_news"))
    assert planned.folder == Path("runs/compare-lstm-transformer-ag_news")
    assert (planned.base.task, planned.base.training.updates) == ("classification", 900)
    assert (planned.summary.task, planned.summary.experiments) == ("classification", ["classification", "text-length"])
    assert planned.summary.own == {"lstm": {"bidirectional": False}}
    assert planned.summary.command.endswith(" --task ag_news")
    assert order(_order("rnn", "gru")).summary.task == "translation"


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("rnn", "lstm", "training.updates"), {}, r"is not an installed model\n.*as in training.updates=200"),
        ((), {}, r"given: none"),
        (("rnn", "gru"), {"experiments": ("gradient",)}, r"--experiment: no experiment 'gradient'\n.*gradients"),
        (
            ("rnn", "gru"),
            {"experiments": ("accuracy",), "task": "ag_news"},
            r"no experiment 'accuracy'\n.*classification",
        ),
        (
            ("rnn", "gru"),
            {"experiments": ("quality",), "task": "ag_news"},
            r"'quality' is an experiment on translation, not on class.*\n.*classification: classification, text-length",
        ),
        (("rnn", "gru"), {"experiments": ("text-length",)}, r"on classification, not on translation\n.*parallelism"),
        (("rnn", "gru"), {"task": "ag_news", "profile": "quick"}, r"--profile quick has no effect with --task"),
        (("rnn", "gru"), {"task": "compare"}, r"--task: compare is a recipe of task translation.*\n.*--recipe compare"),
        (
            ("rnn", "gru"),
            {"task": "vit_mnist"},
            r"of task images.*\n.*translation \(--recipe\) and on classification \(--task",
        ),
        (("rnn", "gru"), {"task": "ag_new"}, r"ag_new: no such recipe\n.*did you mean ag_news"),
        (("rnn", "gru", "init_from=runs/a"), {"task": "ag_news"}, r"recipe has init_from\n.*init_from=null"),
        (
            ("rnn", "transformer:encoder_positions=rop"),
            {},
            r"command line: transformer:\S*: encoder_positions: is 'rop', expected one of .*did you mean rope\?",
        ),
        (
            ("rnn:layers=2", "transformer:encoder_position=rope,dropout=2"),
            {},
            r"rnn:layers=2: layers: unknown key(.|\n)*dropout: is 2, expected(.|\n)*did you mean encoder_positions",
        ),
        (
            ("rnn", "transformer:rope"),
            {},
            r"transformer:rope.* is not a model with settings\n.*transformer:encoder_pos",
        ),
        (("rnn", "transformer:"), {}, r"transformer:.* is not a model with settings"),
        (("rnn", "tranformer:norm=post"), {}, r"'tranformer' is not an installed model\n.*did you mean transformer"),
        (("rnn:dropout=0,residual=true", "rnn:residual=true,dropout=0"), {}, "one is given twice"),
        (("rnn", "transformer:norm=["), {}, r"is not a YAML value"),
        (("rnn", "lstm", "lstm.bidirectional=maybe"), {}, r"lstm: bidirectional: is .maybe., expected true or false"),
        (("rnn", "gru", "gru.dropout=["), {}, r"command line: gru.dropout=\[: '\[' is not a YAML value"),
        (("rnn", "gru", "training.update=50"), {}, r"training.update=50.*\n?.*updates"),
    ],
)
def test_compare_wrong_word_is_named_with_the_remedy(words, options, message):
    with pytest.raises(UserError, match=message):
        order(_order(*words, **options))


def test_compare_resuming_takes_nothing_but_more_models_seeds_and_experiments():
    check_resumes(_order("gru", ROPE, seeds=2, experiments=("memory",)))
    for word in ("training.updates=500", "rnn.dropout=0"):
        with pytest.raises(
            UserError, match=rf"of the comparison, so {word} would be ignored\n.*as in transformer:norm"
        ):
            check_resumes(_order("gru", word))
    with pytest.raises(UserError, match="settings of the comparison, so --task would"):
        check_resumes(_order(task="ag_news"))


WORDS = ("rnn", "lstm", "data.train=2_000")


@pytest.mark.parametrize(
    ("before", "more", "whole"),
    [
        ({"seeds": 2}, {"seeds": 4}, {"seeds": 4}),
        ({"seeds": 2}, {"seeds": 3}, {}),
        ({}, {}, {}),
        (
            {"seeds": 2, "experiments": ("decoding",)},
            {"experiments": ("memory", "decoding")},
            {"seeds": 2, "experiments": ("memory", "decoding")},
        ),
        ({"experiments": ("quality",)}, {"seeds": 5}, {"seeds": 5, "experiments": ("quality",)}),
        (
            {"profile": "lecture", "experiments": ("quality",)},
            {"experiments": plan_of("translation", "lecture").experiments},
            {"profile": "lecture"},
        ),
    ],
)
def test_comparison_that_is_asked_more_is_one_that_was_asked_so_at_once(before, more, whole):
    first, second = (order(_order(*WORDS, **options)).summary for options in (before, whole))
    found, wanted = extended(first, _order(**more)), second
    assert found.model_copy(update={"command": ""}) == wanted.model_copy(update={"command": ""})
    # the options may stand in another order
    assert sorted(shlex.split(found.command)) == sorted(shlex.split(wanted.command))


def test_comparison_with_further_models_is_one_that_was_begun_with_them():
    first, more, settings = ("lstm", "transformer"), (ROPE, "gru"), ("transformer.dropout=0.2", "data.train=2_000")
    begun = order(_order(*first, *settings, profile="lecture", seeds=2)).summary
    found = extended(begun, _order(*more, experiments=("memory",)))
    every = (*plan_of("translation", "lecture").experiments, "memory")
    wanted = order(_order(*first, *more, *settings, profile="lecture", seeds=2, experiments=every)).summary
    assert found == wanted.model_copy(update={"command": found.command})
    assert found.own[ROPE]["dropout"] == 0.2
    assert shlex.split(found.command)[:6] == ["s2s", "compare", *first, *more]
    assert order(_order(*shlex.split(found.command)[2:8], profile="lecture", seeds=2)).summary.own == found.own


def test_compare_further_models_are_checked():
    begun = order(_order(*WORDS)).summary
    with pytest.raises(UserError, match="rnn: already compared"):
        extended(begun, _order("gru", "rnn"))
    with pytest.raises(UserError, match="'tranformer' is not an installed model"):
        extended(begun, _order("tranformer"))
    with pytest.raises(UserError, match="gru would change the training time of all others"):
        extended(order(_order(*WORDS, match="time")).summary, _order("gru"))


def test_compare_fewer_seeds_than_there_are_are_refused():
    begun = order(_order(*WORDS, seeds=3)).summary
    assert len(extended(begun, _order(seeds=4)).seeds) == 4
    assert extended(begun, _order(seeds=3)).seeds == begun.seeds
    with pytest.raises(UserError, match="--seeds 2: the comparison already has 3 seeds"):
        extended(begun, _order(seeds=2))


def test_compare_more_of_what_does_not_exist_is_refused():
    with pytest.raises(UserError, match="did you mean memory"):
        extended(order(_order(*WORDS)).summary, _order(experiments=("memry",)))


def test_compare_every_row_of_the_table_has_an_experiment_that_fills_it():
    from s2s.comparison.engine import EXPERIMENTS as catalogue

    assert sorted(catalogue) == sorted(name for task in TABLES for name in experiments_of(task))
    for task, rows in TABLES.items():
        filled = {row: name for name in experiments_of(task) for row in catalogue[name].rows}
        assert filled == {name: row.experiment for name, row in rows.items()}
    assert all(experiment.name == name and experiment.question for name, experiment in catalogue.items())
