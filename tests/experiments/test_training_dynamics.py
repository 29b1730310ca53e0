"""What is noted of a training, against the training itself."""

import math

import pytest
import torch

from s2s.experiments.gradients import corpus
from s2s.experiments.gradients.dynamics import ALL, Dynamics, Schooling, report, school, watch
from s2s.recipe.schema import SeedSettings
from s2s.tasks.translation.task import build_model, translation_trainer

SCHOOLING = Schooling(pairs=100, updates=7, tokens=256, every=3)


@pytest.fixture
def learned(contest):
    """A contestant's recipe, its corpus, the trained model and what was seen."""
    made = contest(["lstm"])
    recipe = made.contestants[0].recipe
    prepared = corpus(recipe, SCHOOLING.pairs)
    return recipe, prepared, *school(recipe, prepared, SCHOOLING, 5, made.computer), made.computer


def _trainer(recipe, prepared, computer):
    seeds = SeedSettings(initialization=5, data=5, dropout=5)
    changes = {"updates": 7, "warmup": 1, "tokens_per_update": None, "ema": None, "average_last": None}
    model = build_model(
        recipe.model_copy(update={"seeds": seeds}), prepared.source_tokenizer.size, prepared.target_tokenizer.size
    )
    training = recipe.training.model_copy(update=changes)
    batches = recipe.batches.model_copy(update={"tokens": 256, "max_length": 128})
    return translation_trainer(model, prepared.train, training, batches, seeds, computer)


def test_watching_changes_nothing_and_sees_every_update(learned):
    recipe, prepared, model, seen, computer = learned
    trainer = _trainer(recipe, prepared, computer)
    updates = list(trainer.updates(7))
    for one, other in zip(model.parameters(), trainer.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert seen.losses == [update.loss for update in updates]
    assert seen.norms == [update.gradient_norm for update in updates]
    assert seen.clipped == [update.clipped for update in updates]
    assert seen.layers["decoder.bridge"] == [update.layer_norms["decoder.bridge"] for update in updates]


def test_the_ratio_is_how_far_weights_moved_over_how_large_they_were(learned):
    recipe, prepared, _, seen, computer = learned
    trainer = _trainer(recipe, prepared, computer)
    assert seen.looks == [1, 3, 6]
    for look, ratio, bridge in zip(seen.looks, seen.ratios[ALL], seen.ratios["decoder.bridge"], strict=True):
        for _ in trainer.updates(look - 1):
            pass
        names = [name for name, _ in trainer.model.named_parameters()]
        before = [p.detach().clone().double() for p in trainer.model.parameters()]
        next(trainer.updates(look))
        after = [p.detach().double() for p in trainer.model.parameters()]
        moved = [float((b - a).norm()) for a, b in zip(before, after, strict=True)]
        sizes = [float(a.norm()) for a in before]
        assert ratio == pytest.approx(math.hypot(*moved) / math.hypot(*sizes))
        own = [i for i, name in enumerate(names) if name.startswith("decoder.bridge")]
        assert bridge == pytest.approx(math.hypot(*(moved[i] for i in own)) / math.hypot(*(sizes[i] for i in own)))


def test_a_training_that_fails_says_why_and_keeps_what_was_seen(learned):
    recipe, prepared, _, _, computer = learned
    trainer = _trainer(recipe, prepared, computer)
    next(trainer.updates(1))
    with torch.no_grad():
        next(trainer.model.parameters())[:] = math.inf
    seen = watch(trainer, 7, every=3)
    assert "not finite" in seen.failed
    assert (seen.losses, seen.start, seen.end) == ([], None, None)


def test_the_end_is_the_mean_of_the_last_tenth():
    seen = Dynamics(losses=[float(i) for i in range(20)])
    assert (seen.start, seen.end) == (0.0, 18.5)
    assert Dynamics(losses=[3.0]).end == 3.0


def test_a_report_is_brief(learned):
    found = report(learned[3])
    assert found["losses"] == pytest.approx(learned[3].losses, rel=1e-5)
    assert len(str(found["losses"][0])) <= 8
    assert found["failed"] == ""


def test_the_corpus_is_small_and_prepared_once(learned):
    recipe, prepared = learned[:2]
    assert corpus(recipe, SCHOOLING.pairs) is prepared
    # 400 pairs are all that the recipe has; 100 would be too few for 400 pieces
    assert (len(prepared.train), len(prepared.validation)) == (400, 40)
    assert prepared.corpus.test is None
