"""Trained runs are trained once, go on where they stopped, and short trainings are the trainer's own."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from s2s.comparison import tasks
from s2s.comparison.matching import TOLERANCE
from s2s.comparison.runs import cost_of, learning_curve, prepared, seeds_of, shortened, validation_points
from s2s.comparison.spec import NotForThisModel
from s2s.comparison.tasks import evaluation_of, trained
from s2s.comparison.translation import (
    chosen_pairs,
    flops_per_token,
    resized,
    sizes_of,
    train_briefly,
    trainer_for,
    unigram_loss,
)
from s2s.data.tokenizers import EOS
from s2s.errors import Stopped, UserError
from s2s.models.base import count_parameters
from s2s.run.inference import find_checkpoint, load
from s2s.tasks.seq2seq import build_model, mean_loss
from s2s.tasks.source_use import pair_losses
from s2s.tasks.translation.task import TranslationTask
from s2s.training.device import DeviceContext
from s2s.training.tensor_files import read_tensors


def _weights(folder):
    return read_tensors(find_checkpoint(folder, "last") / "training.safetensors")


def test_a_finished_run_is_not_trained_again(contest, monkeypatch):
    made = contest(["transformer"])
    folder = trained(made, "transformer", 1)
    assert folder == made.folder / "runs" / "transformer-seed1"
    assert cost_of(folder).cpu_seconds > 0
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    monkeypatch.setattr(tasks, "train", pytest.fail)
    monkeypatch.setattr(tasks, "resume", pytest.fail)
    assert trained(made, "transformer", 1) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    points = list(validation_points(folder))
    assert [point.update for point in points] == [6, 12]
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    learned = [entry for entry in updates if "tokens" in entry]
    assert points[-1].tokens == sum(entry["tokens"] for entry in learned)
    assert points[0].tokens == sum(entry["tokens"] for entry in learned[:6])
    assert points[-1].seconds == pytest.approx(sum(entry["seconds"] for entry in learned))
    assert points[-1].cpu_seconds == pytest.approx(sum(entry["cpu_seconds"] for entry in learned))
    # what a comparison keeps does not depend on what else the machine does
    assert learning_curve(folder, made.device_context).seconds[-1] == round(points[-1].cpu_seconds, 3)
    elsewhere = DeviceContext(torch.device("meta"), torch.float32)
    assert learning_curve(folder, elsewhere).seconds[-1] == round(points[-1].seconds, 3)


@pytest.mark.parametrize("task", ["translation", "classification"])
def test_whole_run_prepares_shared_data_before_the_clock_starts(contest, classifiers, monkeypatch, task):
    made = (contest if task == "translation" else classifiers)(["transformer"])
    happened, prepare = [], tasks.prepare

    def noted(what, result):
        happened.append(what)
        return result

    clock = SimpleNamespace(**{name: lambda: noted("clock", 0.0) for name in ("perf_counter", "process_time")})
    monkeypatch.setattr(tasks, "time", clock)
    monkeypatch.setattr(tasks, "prepare", lambda recipe: noted("prepared", prepare(recipe)))
    trained(made, "transformer", 1)
    assert happened == ["prepared", *["clock"] * 4]


def test_an_interrupted_run_goes_on_to_the_same_bits(contest, monkeypatch, tmp_path):
    whole = contest(["transformer"])
    cut = type(whole)(tmp_path / "cut", whole.profile, whole.candidates, whole.seeds, whole.device_context)
    first = trained(whole, "transformer", 1)
    validate = TranslationTask.validate

    def interrupted(self, train_context, log):
        if train_context.trainer.update == 12:
            raise KeyboardInterrupt
        return validate(self, train_context, log)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "validate", interrupted)
        with pytest.raises(Stopped):
            trained(cut, "transformer", 1)
    second = trained(cut, "transformer", 1)
    one, two = _weights(first), _weights(second)
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert [(p.update, p.tokens, p.scores) for p in validation_points(first)] == [
        (p.update, p.tokens, p.scores) for p in validation_points(second)
    ]
    assert (
        evaluation_of(whole, "transformer", 1)[1]["translations"]
        == evaluation_of(cut, "transformer", 1)[1]["translations"]
    )
    # what was done before the interruption is not known, and is not made up
    assert cost_of(second).cpu_seconds is None


def test_seeds_decide_and_equal_seeds_agree(contest):
    assert set(seeds_of(3).model_dump().values()) == {3}
    made = contest(["transformer"], seeds=(1, 2))
    recipe = made.candidate("transformer").recipe
    data = prepared(recipe)
    runs = [train_briefly(shortened(recipe, 0.25), data, seed, made.device_context) for seed in (1, 1, 2)]
    weights = [torch.cat([p.flatten() for p in run.model.parameters()]) for run in runs]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert runs[0].tokens == runs[1].tokens > 0


def test_a_short_training_has_the_weights_of_a_whole_run(contest):
    made = contest(["transformer"])
    recipe = made.candidate("transformer").recipe
    recipe = recipe.model_copy(update={"training": recipe.training.model_copy(update={"ema": 0.9})})
    made = type(made)(
        made.folder, "quick", (type(made.candidates[0])("transformer", recipe),), (1,), made.device_context
    )
    run = load(trained(made, "transformer", 1), "last")
    short = train_briefly(recipe, prepared(recipe), 1, made.device_context)
    for (name, a), (_, b) in zip(run.model.named_parameters(), short.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_run_without_a_test_set_is_tested_on_the_validation_set(contest):
    made = contest(["transformer"])
    recipe = made.candidate("transformer").recipe
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"test": None})})
    made = type(made)(
        made.folder, "quick", (type(made.candidates[0])("transformer", recipe),), (1,), made.device_context
    )
    folder, found = evaluation_of(made, "transformer", 1)
    assert found["split"] == "validation"
    assert len(found["translations"]) == 40
    assert (folder, found) == evaluation_of(made, "transformer", 1)


def test_a_model_that_cannot_translate_is_told_so(contest):
    made = contest(["rnn-tagger"])
    recipe = made.candidate("rnn-tagger").recipe
    with pytest.raises(NotForThisModel, match="cannot translate"):
        train_briefly(recipe, prepared(recipe), 1, made.device_context)


def test_losses_of_pairs_add_up_to_the_mean_loss(contest):
    made = contest(["lstm-attention"])
    recipe = made.candidate("lstm-attention").recipe
    data = prepared(recipe)
    model = build_model(recipe, *sizes_of(data))
    losses = pair_losses(model, data.validation, recipe.batches, made.device_context)
    mean = mean_loss(model, data.validation, recipe.batches, made.device_context)
    assert losses.sum() / data.validation.target_lengths.sum() == pytest.approx(mean, rel=1e-5)
    alone = chosen_pairs(data.validation, np.array([7, 3]))
    assert pair_losses(model, alone, recipe.batches, made.device_context) == pytest.approx(losses[[7, 3]], rel=1e-4)


def test_frequencies_alone_give_the_loss_of_their_distribution(contest):
    data = prepared(contest(["rnn"]).candidates[0].recipe)
    counts = np.ones(400)
    for i in range(len(data.train)):
        for piece in [*data.train.pair(i)[1], EOS]:
            counts[piece] += 1
    told = [piece for i in range(len(data.validation)) for piece in [*data.validation.pair(i)[1], EOS]]
    wanted = -np.mean([np.log(counts[piece] / counts.sum()) for piece in told])
    assert unigram_loss(data.train, data.validation, 400) == pytest.approx(wanted)


@pytest.mark.parametrize("kind", ["lstm", "transformer"])
def test_operations_are_about_six_for_each_parameter_and_token(contest, kind):
    recipe = contest([kind]).candidates[0].recipe
    data = prepared(recipe)
    model = build_model(recipe, *sizes_of(data))
    # Kaplan et al. 2020: two forward and four backward; padding costs, and embeddings that are only looked up do not
    six = 6 * count_parameters(model)
    assert 0.8 * six < flops_per_token(recipe, sizes_of(data), data.train) < 1.6 * six


def test_a_shorter_training_keeps_its_proportions(contest):
    recipe = contest(["rnn"]).candidates[0].recipe
    training = recipe.training.model_copy(update={"updates": 100, "warmup": 40})
    short = shortened(recipe.model_copy(update={"training": training}), 0.5)
    assert (short.training.updates, short.training.warmup) == (50, 10)
    assert shortened(recipe, 0.001).training.updates == 2


@pytest.mark.parametrize("kind", ["rnn", "lstm-attention", "transformer"])
def test_a_resized_model_has_the_wanted_size_and_its_other_settings(contest, kind):
    settings = contest([kind]).candidates[0].settings
    found = resized(settings, kind, (400, 400), 70_000)
    assert abs(count_parameters(build_model_of(found)) - 70_000) <= TOLERANCE * 70_000
    changed = {key for key, value in found.model_dump().items() if value != settings.model_dump()[key]}
    assert changed <= {"width", "feedforward"}
    if "feedforward" in changed:
        assert found.feedforward / found.width == settings.feedforward / settings.width
    with pytest.raises(UserError, match="within 5 %"):
        resized(settings, kind, (400, 400), 50)


def build_model_of(settings):
    from s2s.recipe.installed import module_of

    return module_of(settings.kind).build(settings, 400, 400)


def test_training_can_begin_with_given_weights(contest):
    made = contest(["transformer"])
    recipe = made.candidates[0].recipe
    data = prepared(recipe)
    first = train_briefly(recipe, data, 1, made.device_context)
    start = {name: p.detach().clone() for name, p in first.model.named_parameters()}
    trainer = trainer_for(recipe, sizes_of(data), data.train, 2, made.device_context, start)
    loss = mean_loss(trainer.model, data.validation, recipe.batches, made.device_context)
    assert loss == mean_loss(first.model, data.validation, recipe.batches, made.device_context)
    with trainer.optimization.use_ema_weights():
        assert mean_loss(trainer.model, data.validation, recipe.batches, made.device_context) == loss
