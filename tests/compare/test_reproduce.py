"""Reproductions: tasks are what they are said to be, each runs in a small size, and the command says what came out."""

import math
from dataclasses import asdict, is_dataclass, replace
from statistics import mean

import datasets
import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional

from s2s.cli.main import commands
from s2s.comparison import task_training
from s2s.comparison.reproduce import reproducing
from s2s.comparison.reproduce.agreement import Agreement
from s2s.comparison.reproduce.counting import Counting, _right
from s2s.comparison.reproduce.depth import Depth
from s2s.comparison.reproduce.gradients import ForgetBias, Radius
from s2s.comparison.reproduce.law import Law, Point
from s2s.comparison.reproduce.memory import Adding, CopyMemory, guess
from s2s.comparison.reproduce.recall import Mqar
from s2s.comparison.reproduce.sentences import Length, ReverseSource, join_sentences
from s2s.comparison.reproduce.tiny import Tiny
from s2s.comparison.reproduce.training import Budget
from s2s.comparison.reproduce.warm_up import WarmUp
from s2s.comparison.reproduced import RESULT, Band, read
from s2s.comparison.spec import Trial
from s2s.errors import UserError
from s2s.run.folder import run_lock

CHANCE = torch.Generator().manual_seed(1)
BRIEF = Budget(updates=2, rate=0.001, every=1)
SMALL = (
    CopyMemory(blanks=5, width=8, rows=2, budget=BRIEF, nearby=BRIEF),
    Adding(width=8, rows=2, budget=BRIEF),
    Counting(longest=3, tried=5, rows=2, budget=BRIEF),
    Mqar(pairs=3, keys=5, values=4, rows=2, budget=BRIEF, candidates=(("transformer", 8), ("lstm", 4), ("lstm", 8))),
    WarmUp(updates=2, warmup=1, layers=1, width=16, pairs=2_200, tokens=256, every=1),
    ForgetBias(width=8, steps=40, noise=4, rows=4, budget=BRIEF),
    ReverseSource(width=8, train=2_200, updates=2, tokens=256, tested=2),
    Length(width=8, train=2_200, updates=2, tokens=256, tested=2, longest=3),
    Law(
        initialisations=(
            Point("rnn", 1.3, 0.0, 4),
            Point("lstm", 0.7, 2.0, 4),
            Point("mingru", 1.0, 0.0, 4),
            Point("mingru", 1.0, 4.0, 4),
        ),
        distances=(1, 3),
        least=0,
        steps=20,
        rows=2,
        budget=BRIEF,
    ),
    Agreement(
        trained=(0,),
        longer=(4,),
        parameters=40_000,
        examples=60,
        held_out=8,
        tested=10,
        budget=task_training.Budget(updates=2, rows=16, batches=1, every=1, trial=1, warmup=1),
        rates=(0.002,),
    ),
)


def _measure(reproduction, cell):
    """A measurement as JSON would store it."""
    made = reproduction.measure(cell)
    return asdict(made) if is_dataclass(made) else made


def _measured(reproduction, seeds=(1,)):
    return {cell: _measure(reproduction, cell) for cell in reproduction.trials(seeds)}


def test_every_finding_says_what_was_published_and_what_would_count():
    assert len(reproducing.REPRODUCTIONS) >= 9
    for each in reproducing.REPRODUCTIONS.values():
        keys = [band.key for band in each.bands]
        assert keys
        assert len(set(keys)) == len(keys)
        for band in each.bands:
            assert band.what
            assert band.published
            assert (band.low, band.high) != (None, None)
        assert 0 < each.seconds[0] < each.seconds[1]
        assert len({cell.key for cell in each.trials([1, 2])}) == len(each.trials([1, 2]))


@pytest.mark.parametrize("reproduction", SMALL, ids=lambda each: each.name)
def test_each_runs_in_a_small_size_and_gives_every_number(reproduction):
    measured = _measured(reproduction)
    numbers = reproduction.numbers(measured)
    assert set(numbers) == {band.key for band in reproduction.bands}
    assert all(len(values) == 1 for values in numbers.values())
    assert [figure.name for figure in reproduction.figures(measured)]
    # the same seeds give the same numbers
    cell = reproduction.trials([1])[-1]
    assert _measure(reproduction, cell) == measured[cell]


@pytest.mark.parametrize("reproduction", [Depth(lengths=(4, 8, 12)), Radius(steps=120)], ids=lambda each: each.name)
def test_what_theory_fixes_is_found(reproduction):
    assert all(check.inside for check in reproducing.checks(reproduction, _measured(reproduction)))


def test_the_forget_gates_bias_is_what_the_step_says_at_rest():
    factors = ForgetBias(steps=120).measure(Trial("lstm", "factors", 1))["factors"]
    # near rest: the gate itself, and a quarter by way of the output
    for bias, found in zip((0, 1), factors, strict=False):
        assert found == pytest.approx(1 / (1 + math.exp(-bias)) + 0.25, abs=0.05)
    assert factors == sorted(factors)


def test_one_who_forgets_the_symbols_has_the_loss_that_is_given():
    task = CopyMemory()
    assert guess(1_000) == pytest.approx(0.0204, abs=5e-5)
    source, wanted = task.draw(1_000, CHANCE)
    assert source.shape == wanted.shape == (16, 1020)
    # blank for certain, and at the end any of eight symbols
    said = torch.full((*wanted.shape, 9), -30.0)
    said[:, :-10, 0] = 30.0
    said[:, -10:, 1:] = 30.0
    assert float(functional.cross_entropy(said.transpose(1, 2), wanted)) == pytest.approx(guess(1_000), rel=1e-4)
    assert torch.equal(source[:, :10], wanted[:, -10:])
    # the delimiter stands right before the first answer
    assert (source == 9).nonzero()[:, 1].unique().tolist() == [1009]


def test_one_who_says_the_mean_of_all_sums_errs_by_a_sixth():
    source, sums = replace(Adding(), rows=20_000).draw(20, CHANCE)
    assert float((sums - 1).square().mean()) == pytest.approx(1 / 6, abs=0.01)
    assert source[..., 1].sum(dim=1).unique().tolist() == [2.0]
    assert source[:, :10, 1].sum(dim=1).unique().tolist() == [1.0]
    assert torch.allclose((source[..., 0] * source[..., 1]).sum(dim=1), sums)


class _Counter(torch.nn.Module):
    """Counts the a's as far as it can, and says at each b whether there must be another."""

    def __init__(self, most):
        super().__init__()
        self.most = most

    def forward(self, source):
        left = (source == 1).sum(dim=1, keepdim=True).clamp(max=self.most) - (source == 2).cumsum(dim=1)
        return torch.stack((left > 0, left <= 0), dim=2).float()


def test_a_network_counts_as_far_as_every_answer_is_right():
    assert [n for n in range(1, 30) if _right(_Counter(12), n)] == list(range(1, 13))
    source, wanted = replace(Counting(), rows=50).draw(CHANCE)
    for row, answers in zip(source.tolist(), wanted.tolist(), strict=True):
        asked = [answer for answer in answers if answer >= 0]
        assert len(asked) == row.count(1)
        assert asked == [0] * (len(asked) - 1) + [1]


def test_what_is_looked_up_was_stored():
    source, wanted = Mqar().draw(CHANCE)
    assert source.shape == (64, 16)
    for row, answers in zip(source.tolist(), wanted.tolist(), strict=True):
        stored = dict(divmod(piece - 16, 16) for piece in row[:8])
        assert len(stored) == 8
        assert sorted(row[8:]) == sorted(stored)
        assert [stored[key] for key in row[8:]] == answers[8:]
        assert set(answers[:8]) == {-100}


def test_warm_up_changes_nothing_but_what_it_says():
    task = WarmUp()
    first, second = (task.recipe("post", warmup) for warmup in (0, 200))
    assert (first.training.warmup, second.training.warmup) == (0, 200)
    assert first.training.model_copy(update={"warmup": 200}) == second.training
    assert first.model == second.model
    assert first.model.norm == "post"
    assert first.model.encoder_layers == 6


def test_sources_are_read_from_their_ends_and_nothing_else_changes():
    task = ReverseSource()
    first, second = (task.recipe(cell) for cell in task.trials([1]))
    assert first.model.model_copy(update={"reverse_source": True}) == second.model
    assert first.model_copy(update={"model": second.model}) == second
    runs = zip(task.trials([1, 2]), (6.0, 3.0, 4.0, 3.6), strict=True)
    measured = {cell: {"perplexity": value, "bleu": 10 * value} for cell, value in runs}
    assert task.numbers(measured) == {
        "perplexity": [0.5, pytest.approx(0.9)],
        "bleu": [-30.0, pytest.approx(-4.0)],
        "learned": [30.0, 36.0],
    }


def test_sentences_are_joined_with_those_that_follow():
    corpus = datasets.Dataset.from_dict({"source": list("abcde"), "target": list("ABCDE")})
    assert join_sentences(corpus, 1) == (list("abcde"), list("ABCDE"))
    assert join_sentences(corpus, 2) == (["a b", "c d"], ["A B", "C D"])


def test_what_is_left_with_length_is_a_share_of_the_short_ones():
    task = Length()
    shares = {"lstm": (40.0, 0.5), "lstm-attention": (60.0, 0.95)}
    measured = {cell: dict(zip(("short", "kept"), shares[cell.model], strict=True)) for cell in task.trials([1])}
    assert task.numbers(measured) == {"learned": [40.0], "attention": [0.95], "more": [pytest.approx(0.45)]}
    assert all(check.inside for check in reproducing.checks(task, measured))


def test_a_training_by_a_recipe_takes_its_settings_and_is_made_once(tmp_path):
    settings = {"data.corpus": "built-in", "data.train": 400, "data.validation": 8, "data.test": 8}
    settings |= {"tokenizer.kind": "char", "model.width": 16, "training.updates": 2, "training.warmup": 1}
    settings |= {"batches.tokens": 256, "validation.every": 1, "decoding.beam": 1}
    settings |= {"model.encoder_layers": 1, "model.decoder_layers": 1, "device.precision": "fp32"}
    task = Tiny().asked([f"{key}={value}" for key, value in settings.items()], tmp_path)
    (cell,) = task.trials([1])
    first = task.measure(cell)
    assert first["updates"] == [1, 2]
    weights = max((tmp_path / "runs" / "seed1").rglob("*.safetensors"))
    before = weights.stat().st_mtime_ns
    assert task.measure(cell) == first
    assert weights.stat().st_mtime_ns == before
    # what ships, and where the data lie
    recipe = Tiny().asked([f"data.root={tmp_path}"], tmp_path).recipe(3, tmp_path / "x")
    assert (recipe.training.updates, recipe.seeds.data, str(recipe.data.root)) == (8_000, 3, str(tmp_path))
    with pytest.raises(UserError, match="takes no settings"):
        Radius().asked(["data.root=here"], tmp_path)


def test_agreement_is_asked_beyond_what_was_learned():
    task = Agreement()
    runs = {Trial("lstm-attention", seed=1): 97.0, Trial("transformer", seed=1): 60.0}
    measured = {
        cell: {"distances": [0, 32], "right": [99.0, longest], "learned": 99.0, "longest": longest}
        for cell, longest in runs.items()
    }
    assert task.numbers(measured) == {"learned": [99.0], "gap": [37.0]}
    assert [check.inside for check in reproducing.checks(task, measured)] == [True, True]
    assert len(task.figures(measured)[0].series) == 3


def test_differences_are_between_runs_of_the_same_seed():
    runs = {
        ("lstm-attention", 1): 90.0,
        ("lstm-attention", 2): 80.0,
        ("transformer", 2): 50.0,
        ("transformer", 3): 10.0,
    }
    measured = {Trial(kind, seed=seed): {"longest": right, "learned": 99.0} for (kind, seed), right in runs.items()}
    assert Agreement().numbers(measured)["gap"] == [30.0]


class _Flaky(Radius):
    """Fails at one seed until it is mended, and counts what it measures."""

    made = 0
    broken = True

    def measure(self, cell):
        type(self).made += 1
        if cell.seed == 2 and self.broken:
            raise UserError("the machine is on fire")
        return super().measure(cell)


@pytest.fixture
def flaky(monkeypatch):
    _Flaky.made, _Flaky.broken = 0, True
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", _Flaky(steps=60, width=16))
    return _Flaky


def test_what_was_measured_is_not_measured_again(flaky, tmp_path):
    lines = []
    first = reproducing.reproduce("radius", tmp_path, 3, lines.append)
    assert flaky.made == 3
    assert [failure.reason for failure in first.failures] == ["the machine is on fire"]
    assert any("on fire" in line for line in lines)
    assert [len(check.by_seed) for check in first.checks] == [2] * len(Radius.bands)
    flaky.broken = False
    second = reproducing.reproduce("radius", tmp_path, 3, lines.append)
    # the one that failed is tried again, and no other
    assert flaky.made == 4
    assert second.failures == []
    assert second.checks[0].ours == pytest.approx(sorted(second.checks[0].by_seed)[1])
    assert read(tmp_path / RESULT) == second


def test_the_command_says_what_came_out_and_draws_it(monkeypatch, tmp_path):
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", Radius(steps=100, width=24))
    out = tmp_path / "radius"
    done = CliRunner().invoke(commands, ["reproduce", "radius", "--seeds", "2", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "radius: reproduced" in done.output
    # what it costs is said before it begins
    assert done.output.index("cost:") < done.output.index("rnn--seed1")
    page = (out / "report.html").read_text()
    assert "Pascanu" in page
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    result = read(out / RESULT)
    assert result.command == "s2s reproduce radius --seeds 2"
    assert result.seeds == [1, 2]
    assert 0 < result.core_seconds < 60
    assert result.machine["processor"]


def test_a_finding_that_is_not_found_is_a_result(monkeypatch, tmp_path):
    wrong = Band(key="ratio", what="the ratio", published="2", low=1.9, high=2.1)
    monkeypatch.setattr(Radius, "bands", (wrong, *Radius.bands[1:]))
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", Radius(steps=60, width=16))
    done = CliRunner().invoke(commands, ["reproduce", "radius", "--seeds", "1", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "not reproduced: 1 of 4 outside their bands" in done.output
    assert "outside" in (tmp_path / "report.html").read_text()


def test_without_a_name_all_are_listed_and_a_wrong_one_is_told(tmp_path):
    done = CliRunner().invoke(commands, ["reproduce"])
    assert done.exit_code == 0
    for name in reproducing.REPRODUCTIONS:
        assert f"{name}: " in done.output
    assert done.output.count("  source: ") == len(reproducing.REPRODUCTIONS)
    wrong = CliRunner().invoke(commands, ["reproduce", "raduis", "--out", str(tmp_path)])
    assert isinstance(wrong.exception, UserError)
    assert "radius" in str(wrong.exception)
    assert not list(tmp_path.iterdir())


def test_a_band_is_closed_and_holds_no_infinity():
    band = Band(key="a", what="", published="", low=1.0, high=2.0)
    assert [band.holds(value) for value in (0.99, 1.0, 2.0, 2.01)] == [False, True, True, False]
    above = Band(key="a", what="", published="", low=1.0)
    assert not above.holds(math.inf)
    assert not above.holds(math.nan)
    assert (str(band), str(above)) == ("1 to 2", "≥ 1")


def test_a_damaged_file_is_told(tmp_path):
    (tmp_path / RESULT).write_text("{}")
    with pytest.raises(UserError, match="no reproduction that this version reads"):
        read(tmp_path / RESULT)


def test_the_median_over_seeds_decides():
    task = Radius()
    runs = {
        Trial("rnn", seed=seed): {"radii": [0.9, 1.5], "still": [0.9, last], "driven": [0.5, 0.6]}
        for seed, last in ((1, 1.5), (2, 1.5), (3, 3.0))
    }
    check = reproducing.checks(task, runs)[0]
    assert check.by_seed == pytest.approx([1.0, 1.0, 2.0])
    assert (check.ours, check.inside) == (pytest.approx(1.0), True)
    assert mean(check.by_seed) > 1.03


def test_two_processes_do_not_measure_in_one_folder(tmp_path):
    with run_lock(tmp_path), pytest.raises(UserError, match="another process is measuring in it"):
        reproducing.reproduce("radius", tmp_path, 1, lambda line: None)
    assert list((tmp_path / "cells").iterdir()) == []
    # the lock is given back, and does not stand in the way
    assert not [path for path in tmp_path.iterdir() if path.name == "reproduction.json"]


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path):
    (tmp_path / "report.html").write_text("precious")
    with pytest.raises(UserError, match="holds something else"):
        reproducing.reproduce("depth", tmp_path, None, print)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "precious"
