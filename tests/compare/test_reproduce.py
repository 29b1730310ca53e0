"""Reproductions: their tasks, small runs of each, the rule of the outcome, and the command."""

import json
import math
from dataclasses import asdict, replace
from statistics import mean

import datasets
import pytest
import torch
from click.testing import CliRunner
from torch.nn import functional

from s2s.cli.main import commands
from s2s.comparison.questions.long_range.learning import ExerciseBudget
from s2s.comparison.reproduce import reproducing
from s2s.comparison.reproduce.adding import Adding
from s2s.comparison.reproduce.agreement import Agreement, Verbs
from s2s.comparison.reproduce.attention_scores import AttentionScores
from s2s.comparison.reproduce.copy_memory import CopyMemory, DilatedConvolution, loss_without_memory
from s2s.comparison.reproduce.copying import Copying
from s2s.comparison.reproduce.counting import Counting, Reach, is_right
from s2s.comparison.reproduce.depth import Depth
from s2s.comparison.reproduce.forget_bias import ForgetBias
from s2s.comparison.reproduce.induction import Induction
from s2s.comparison.reproduce.law import Law, Point
from s2s.comparison.reproduce.length import Length, QualityByLength
from s2s.comparison.reproduce.mingru import MinGru
from s2s.comparison.reproduce.mqar import Mqar
from s2s.comparison.reproduce.no_positions import NoPositions
from s2s.comparison.reproduce.norm_gradients import GradientsByDepth, NormGradients
from s2s.comparison.reproduce.positions_length import PositionsLength
from s2s.comparison.reproduce.radius import Factors, Radius
from s2s.comparison.reproduce.reverse_source import ReverseSource
from s2s.comparison.reproduce.sensitivity import ChangeByLength, Sensitivity, flip_one
from s2s.comparison.reproduce.state_tracking import StateTracking
from s2s.comparison.reproduce.tiny import Tiny
from s2s.comparison.reproduce.training import AccuracyByLength, Budget, LossCurve, target_cross_entropy
from s2s.comparison.reproduce.translators import Quality, join_sentences
from s2s.comparison.reproduce.warm_up import WarmUp
from s2s.comparison.reproduced import RESULT, Band, Check, Reproduced, read
from s2s.comparison.spec import Trial
from s2s.data.synthetic_tasks import FIRST, NO_LABEL
from s2s.data.synthetic_tasks import StateTracking as Automaton
from s2s.data.tokenizers import EOS
from s2s.errors import UserError
from s2s.run.folder import run_lock

CHANCE = torch.Generator().manual_seed(1)
BRIEF = Budget(updates=2, rate=0.001, every=1)
SIZES = (("transformer", 8), ("lstm", 2), ("lstm", 4), ("lstm", 8), ("mingru", 4))
SMALL = (
    CopyMemory(blanks=5, width=8, levels=2, rows=2, budget=BRIEF, near_budget=BRIEF),
    Adding(width=8, rows=2, budget=BRIEF),
    Counting(longest=3, tried=5, rows=2, budget=BRIEF),
    Mqar(pairs=3, keys=5, values=4, rows=2, budget=BRIEF, candidates=(("transformer", 8), ("lstm", 4), ("lstm", 8))),
    Copying(candidates=SIZES, longest=3, tested=(3, 5), rows=2, texts=2, budget=BRIEF),
    Induction(lengths=(2, 3), tested=(3,), rows=2, texts=2, budget=BRIEF),
    MinGru(width=8, kept=2, length=6, rows=2, texts=2, chains=(4, 8), budget=BRIEF),
    PositionsLength(longest=3, tested=(3, 5), rows=2, texts=2, budget=BRIEF),
    StateTracking(width=8, longest=3, tested=(3, 5), last=2, rows=2, texts=2, budget=BRIEF),
    Sensitivity(width=8, max_length=3, tested=(4, 8), rows=2, texts=2, budget=BRIEF),
    NormGradients(width=8, depths=(1, 2), networks=1, rows=2, length=4),
    NoPositions(width=8, layers=1, sentences=1_200, heldout=20, share=0.5, length=8, rows=4, windows=4, budget=BRIEF),
    WarmUp(updates=2, warmup=1, layers=1, width=16, pairs=2_200, tokens=256, every=1),
    ForgetBias(width=8, steps=40, noise=4, rows=4, budget=BRIEF),
    AttentionScores(width=8, train=2_200, updates=2, tokens=256, tested=2),
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
        budget=ExerciseBudget(updates=2, rows=16, batches=1, every=1, trial=1, warmup=1),
        rates=(0.002,),
    ),
)


def _measure(reproduction, trial):
    """A measurement as a later run reads it from its file."""
    made = reproduction.measure(trial)
    read_again = reproduction.read_measurement(json.loads(json.dumps(asdict(made))))
    assert read_again == made
    return read_again


def _measured(reproduction, seeds=(1,)):
    return {trial: _measure(reproduction, trial) for trial in reproduction.trials(seeds)}


def test_reproduction_names_published_numbers_and_bands():
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
def test_reproduction_gives_every_number(reproduction):
    measured = _measured(reproduction)
    numbers = reproduction.numbers(measured)
    assert set(numbers) == {band.key for band in reproduction.bands}
    assert all(list(values) == [1] for values in numbers.values())
    assert [figure.name for figure in reproduction.figures(measured)]
    # the same seeds give the same numbers
    cell = reproduction.trials([1])[-1]
    assert _measure(reproduction, cell) == measured[cell]


@pytest.mark.parametrize("reproduction", [Depth(lengths=(4, 8, 12)), Radius(steps=120)], ids=lambda each: each.name)
def test_reproduction_finds_derived_numbers(reproduction):
    checks = reproducing.checks(reproduction, _measured(reproduction, (1, 2, 3)))
    assert [check.outcome for check in checks] == ["reproduced"] * len(checks)


def test_forget_bias_factor_is_the_derived_one():
    factors = ForgetBias(steps=120).measure(Trial("lstm", "factors", 1)).factors
    # near rest: the gate itself, and a quarter by way of the output
    for bias, found in zip((0, 1), factors, strict=False):
        assert found == pytest.approx(1 / (1 + math.exp(-bias)) + 0.25, abs=0.05)
    assert factors == sorted(factors)


def test_copy_memory_loss_without_memory_is_that_of_a_loss_without_memory():
    task = CopyMemory()
    assert loss_without_memory(1_000) == pytest.approx(0.0204, abs=5e-5)
    source, wanted = task.draw(1_000, CHANCE)
    assert source.shape == wanted.shape == (16, 1020)
    # blank for certain, and at the end any of eight symbols
    said = torch.full((*wanted.shape, 9), -30.0)
    said[:, :-10, 0] = 30.0
    said[:, -10:, 1:] = 30.0
    assert float(functional.cross_entropy(said.transpose(1, 2), wanted)) == pytest.approx(
        loss_without_memory(1_000), rel=1e-4
    )
    assert torch.equal(source[:, :10], wanted[:, -10:])
    # the delimiter stands right before the first answer
    assert (source == 9).nonzero()[:, 1].unique().tolist() == [1009]


def test_adding_error_of_the_mean_is_a_sixth():
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


def test_counting_reach_ends_at_the_first_wrong_answer():
    assert [n for n in range(1, 30) if is_right(_Counter(12), n)] == list(range(1, 13))
    source, wanted = replace(Counting(), rows=50).draw(CHANCE)
    for row, answers in zip(source.tolist(), wanted.tolist(), strict=True):
        asked = [answer for answer in answers if answer >= 0]
        assert len(asked) == row.count(1)
        assert asked == [0] * (len(asked) - 1) + [1]


def test_mqar_targets_are_the_stored_values():
    source, wanted = Mqar().draw(CHANCE)
    assert source.shape == (64, 16)
    for row, answers in zip(source.tolist(), wanted.tolist(), strict=True):
        stored = dict(divmod(piece - 16, 16) for piece in row[:8])
        assert len(stored) == 8
        assert sorted(row[8:]) == sorted(stored)
        assert [stored[key] for key in row[8:]] == answers[8:]
        assert set(answers[:8]) == {-100}


def test_copying_targets_are_the_string_and_its_end():
    source, targets = Copying().strings(3, 5, CHANCE)
    assert torch.equal(source, targets)
    assert source.shape == (3, 6)
    assert source[:, -1].unique().tolist() == [EOS]


def test_induction_targets_are_the_tokens_of_the_first_half():
    source, targets = Induction().repeated(3, 5, CHANCE)
    assert source.shape == targets.shape == (3, 9)
    assert torch.equal(targets[:, 5:], source[:, 1:5])
    assert targets[:, :5].unique().tolist() == [NO_LABEL]


def _most_frequent_left(targets):
    """Share of answers that equal the most frequent of the row's answers that are left, or its end."""
    found = []
    for row in targets.tolist():
        answers = [token for token in row if token != NO_LABEL]
        symbols = [token for token in answers if token != EOS]
        left = [max(sorted(set(symbols[i:])), key=symbols[i:].count) for i in range(len(symbols))]
        found.append((sum(map(int.__eq__, left, symbols)) + len(answers) - len(symbols)) / len(answers))
    return sum(found) / len(found)


@pytest.mark.parametrize(
    ("reproduction", "draw"),
    [
        (Copying(longest=8, tested=(3, 8)), lambda task, n: task.strings(4_000, n, CHANCE)),
        (PositionsLength(symbols=5, longest=8, tested=(3, 8)), lambda task, n: task.strings(4_000, n, CHANCE)),
        (Induction(symbols=5, tested=(3, 8)), lambda task, n: task.repeated(4_000, n, CHANCE)),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_accuracy_figures_draw_the_accuracy_of_the_symbols_without_their_order(reproduction, draw):
    run = AccuracyByLength(LossCurve([1], [1.0], None), dict.fromkeys(reproduction.tested, 50.0))
    (shown,) = reproduction.figures({Trial("transformer", "one", 1): run})
    (line,) = [each for each in shown.series if each.reference]
    assert line.x == [3.0, 8.0]
    for length, share in zip(reproduction.tested, line.y, strict=True):
        assert share == pytest.approx(100 * _most_frequent_left(draw(reproduction, length)[1]), abs=1.5)


def test_agreement_figure_draws_the_number_of_the_verb_before():
    (shown,) = Agreement(trained=(0, 4), longer=(8,)).figures({})
    (line,) = shown.series
    # up to one clause, the verb before has the number of the subject
    assert line.y[:2] == [100.0, 100.0]
    assert 50 <= line.y[2] < 60


def test_mqar_figure_draws_the_accuracy_of_the_most_frequent_value():
    task = Mqar(pairs=4, keys=6, values=3, rows=4_000)
    _, targets = task.draw(CHANCE)
    values = targets[:, task.pairs :]
    right = (values == values.mode(dim=1, keepdim=True).values).float().mean()
    (shown,) = task.figures({})
    (line,) = [each for each in shown.series if each.reference]
    assert line.y[0] == pytest.approx(100 * float(right), abs=1.5)


def test_positions_length_targets_are_the_string_after_the_separator():
    task = PositionsLength()
    source, targets = task.strings(3, 5, CHANCE)
    assert torch.equal(targets[:, 6:11], source[:, 1:6])
    assert targets[:, 11].unique().tolist() == [EOS]
    assert source[:, 6].unique().tolist() == [FIRST]
    assert not (source[:, 1:6] <= FIRST).any()
    assert (targets != NO_LABEL).sum() == 3 * 6


def test_state_tracking_asks_the_last_states():
    task = StateTracking()
    automaton = Automaton("parity", (40,), (40,))
    source, targets = task.test(automaton, 40, seed=1)
    parity = (source - FIRST).cumsum(dim=1) % 2
    assert torch.equal(targets[:, -10:], parity[:, -10:])
    assert targets[:, :-10].unique().tolist() == [NO_LABEL]


def test_sensitivity_flips_one_symbol_but_not_the_last():
    strings = FIRST + torch.randint(2, (50, 5), generator=CHANCE)
    flipped = flip_one(strings, CHANCE)
    different = strings != flipped
    assert different.sum(dim=1).tolist() == [1] * 50
    assert different.any(dim=0).tolist() == [True] * 4 + [False]
    assert set(flipped.unique().tolist()) <= {FIRST, FIRST + 1}


def test_sensitivity_of_uniform_attention_is_one_nth():
    """With equal attention scores, a layer's context is the mean of its values, so the bound 1/n is exact."""
    task = Sensitivity(texts=4, tested=(8, 64))
    automaton = Automaton("parity", (8,), (8,))

    class Uniform(torch.nn.Module):
        def forward(self, symbols):
            return (symbols - FIRST).double().mean(dim=1)[:, None, None].expand(-1, symbols.shape[1], 1)

    for length in task.tested:
        assert task.change(Uniform(), automaton, length, CHANCE) == pytest.approx(1 / length)


def test_sensitivity_numbers_are_exponents_of_each_case():
    changes = {"untrained": lambda n: 3 / n, "transformer": lambda n: n**-0.5, "lstm": lambda n: 7.0}
    task = Sensitivity()
    cells = zip(changes.values(), task.trials([1]), strict=True)
    measured = {cell: ChangeByLength({n: change(n) for n in (16, 64, 256)}, 50.0) for change, cell in cells}
    numbers = task.numbers(measured)
    found = [numbers[key][1] for key in ("untrained", "transformer", "lstm", "learned")]
    assert found == pytest.approx([-1, -0.5, 0, 50])


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_norm_gradients_are_those_of_the_last_output_weights(norm):
    """The gradient's norm is the change of the loss by a step along the gradient."""
    task = NormGradients(width=8, rows=2, length=4)
    model, tokens, targets = task.draw(norm, 2, seed=3)
    first, last = model.encoder.layers
    assert (last.feedforward_block.before, first.feedforward_block.before) == (norm == "pre", norm == "pre")
    weight = last.feedforward.contract.weight
    loss = target_cross_entropy(model(tokens), targets)
    (gradient,) = torch.autograd.grad(loss, weight)
    found = task.gradient(norm, 2, seed=3)
    step = 1e-3
    with torch.no_grad():
        weight += step * gradient / found
        moved = target_cross_entropy(model(tokens), targets)
    assert (moved.item() - loss.item()) / step == pytest.approx(found, rel=0.02)


def test_norm_gradients_numbers_are_exponents_of_the_depth():
    task = NormGradients()
    norms = {"post": lambda depth: 1.6, "pre": lambda depth: depth**-0.5}
    measured = {
        cell: GradientsByDepth({depth: norms[cell.part](depth) for depth in (8, 32, 128)}) for cell in task.trials([1])
    }
    assert task.numbers(measured) == {"post": {1: pytest.approx(0)}, "pre": {1: pytest.approx(-0.5)}}


def test_no_positions_masks_tokens_and_asks_for_them():
    task = replace(NoPositions(), rows=200)
    text = torch.arange(100)
    tokens, targets = task.batch("masked", text, 200, CHANCE)
    asked = targets != NO_LABEL
    assert tokens[asked].unique().tolist() == [1_000]
    windows = torch.where(asked, targets, tokens)
    assert torch.equal(windows, windows[:, :1] + torch.arange(32))
    assert float(asked.float().mean()) == pytest.approx(0.15, abs=0.02)
    tokens, targets = task.batch("causal", text, 3, CHANCE)
    assert torch.equal(targets, tokens + 1)


def test_no_positions_masked_model_ignores_the_order():
    task = NoPositions(width=8, layers=1)
    tokens = torch.randperm(900, generator=CHANCE)[None, :12]
    order = torch.randperm(12, generator=CHANCE)
    with torch.no_grad():
        without, with_positions = (task.build("masked", kind, seed=1) for kind in ("none", "sinusoidal"))
        assert torch.allclose(without(tokens)[:, order], without(tokens[:, order]), atol=1e-5)
        assert not torch.allclose(with_positions(tokens)[:, order], with_positions(tokens[:, order]), atol=1e-2)


def test_no_positions_causal_models_read_no_later_token():
    task = NoPositions(width=8, layers=1)
    tokens = torch.randperm(900, generator=CHANCE)[None, :12]
    changed = tokens.clone()
    changed[:, -1] = 999
    with torch.no_grad():
        without, with_positions = (task.build("causal", kind, seed=1) for kind in ("none", "sinusoidal"))
        for model in (without, with_positions):
            assert torch.equal(model(tokens)[:, :-1], model(changed)[:, :-1])
            assert not torch.allclose(model(tokens)[:, -1], model(changed)[:, -1], atol=1e-3)
        assert not torch.allclose(without(tokens), with_positions(tokens), atol=1e-3)


def test_mingru_targets_are_the_symbols_in_order():
    source, targets = MinGru().draw(CHANCE)
    for row, answers in zip(source.tolist(), targets.tolist(), strict=True):
        assert row[64:] == [17] * 8
        assert [symbol for symbol in row[:64] if symbol != 16] == answers[64:]
        assert set(answers[:64]) == {NO_LABEL}


def test_budget_rate_rises_and_falls():
    budget = Budget(updates=10, rate=1.0, warmup=4, decay=0.5)
    rates = [budget.rate_at(update) for update in range(1, 11)]
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 0.8, 0.6, 0.4, 0.2])
    assert {Budget(updates=10, rate=1.0).rate_at(update) for update in range(1, 11)} == {1.0}


def test_warm_up_recipes_differ_in_warm_up_alone():
    task = WarmUp()
    first, second = (task.recipe("post", warmup) for warmup in (0, 200))
    assert (first.training.warmup, second.training.warmup) == (0, 200)
    assert first.training.model_copy(update={"warmup": 200}) == second.training
    assert first.model == second.model
    assert first.model.norm == "post"
    assert first.model.encoder_layers == 6


def test_reverse_source_recipes_differ_in_the_order_alone():
    task = ReverseSource()
    first, second = (task.recipe(cell) for cell in task.trials([1]))
    assert first.model.model_copy(update={"reverse_source": True}) == second.model
    assert first.model_copy(update={"model": second.model}) == second
    runs = zip(task.trials([1, 2]), (6.0, 3.0, 4.0, 3.6), strict=True)
    measured = {cell: Quality(value, 10 * value) for cell, value in runs}
    assert task.numbers(measured) == {
        "perplexity": {1: 0.5, 2: pytest.approx(0.9)},
        "bleu": {1: -30.0, 2: pytest.approx(-4.0)},
        "learned": {1: 30.0, 2: 36.0},
    }


def test_attention_scores_recipes_differ_in_the_score_alone():
    task = AttentionScores()
    first, *others = (task.recipe(cell) for cell in task.trials([1]))
    assert (first.model.attention, first.model.input_feeding, first.model.reverse_source) == ("dot", True, True)
    for recipe, score in zip(others, ("general", "location"), strict=True):
        assert recipe == first.model_copy(update={"model": first.model.model_copy(update={"attention": score})})
    runs = zip(task.trials([1, 2]), (4.0, 5.0, 6.0, 8.0, 8.0, 6.0), strict=True)
    measured = {cell: Quality(value, 10 * value) for cell, value in runs}
    assert task.numbers(measured) == {
        "dot": {1: 1.5, 2: 0.75},
        "general": {1: pytest.approx(1.2), 2: 0.75},
        "bleu": {1: -20.0, 2: 20.0},
        "learned": {1: 40.0, 2: 80.0},
    }
    (figure,) = task.figures(measured)
    assert [(line.label, line.y) for line in figure.series] == [
        ("dot", [4.0, 8.0]),
        ("general", [5.0, 8.0]),
        ("location", [6.0, 6.0]),
    ]


def test_join_sentences_joins_consecutive_ones():
    corpus = datasets.Dataset.from_dict({"source": list("abcde"), "target": list("ABCDE")})
    assert join_sentences(corpus, 1) == (list("abcde"), list("ABCDE"))
    assert join_sentences(corpus, 2) == (["a b", "c d"], ["A B", "C D"])


def test_length_numbers_are_shares_of_short_texts():
    task = Length()
    shares = {"lstm": (40.0, 0.5), "lstm-attention": (60.0, 0.95)}
    measured = {}
    for cell in task.trials([1]):
        short, kept = shares[cell.model]
        measured[cell] = QualityByLength([8.0], [short], kept, short)
    assert task.numbers(measured) == {"learned": {1: 40.0}, "attention": {1: 0.95}, "more": {1: pytest.approx(0.45)}}


def test_tiny_takes_settings_and_trains_once(tmp_path):
    settings = {"data.corpus": "built-in", "data.train": 400, "data.validation": 8, "data.test": 8}
    settings |= {"tokenizer.kind": "char", "model.width": 16, "training.updates": 2, "training.warmup": 1}
    settings |= {"batches.tokens": 256, "validation.every": 1, "decoding.beam": 1}
    settings |= {"model.encoder_layers": 1, "model.decoder_layers": 1, "device.precision": "fp32"}
    task = Tiny().asked([f"{key}={value}" for key, value in settings.items()], tmp_path)
    (cell,) = task.trials([1])
    first = task.measure(cell)
    assert first.updates == [1, 2]
    weights = max((tmp_path / "runs" / "seed1").rglob("*.safetensors"))
    before = weights.stat().st_mtime_ns
    assert task.measure(cell) == first
    assert weights.stat().st_mtime_ns == before
    # no mean over seeds of different data
    with pytest.raises(UserError, match="other seeds were trained on other data"):
        replace(task, settings=(*task.settings, "data.train=300")).measure(Trial("transformer", seed=2))
    # what ships, and where the data lie
    recipe = Tiny().asked([f"data.root={tmp_path}"], tmp_path).recipe(3, tmp_path / "x")
    assert (recipe.training.updates, recipe.seeds.data, str(recipe.data.root)) == (4_000, 3, str(tmp_path))
    with pytest.raises(UserError, match="takes no settings"):
        Radius().asked(["data.root=here"], tmp_path)


def _verbs(longest):
    return Verbs([0, 32], [99.0, longest], 99.0, longest, 0.002, 1)


def test_agreement_gap_is_between_equal_seeds():
    task = Agreement()
    runs = {
        ("lstm-attention", 1): 90.0,
        ("lstm-attention", 2): 80.0,
        ("transformer", 2): 50.0,
        ("transformer", 3): 10.0,
    }
    measured = {Trial(kind, seed=seed): _verbs(right) for (kind, seed), right in runs.items()}
    assert task.numbers(measured) == {"learned": {1: 99.0, 2: 99.0}, "gap": {2: 30.0}}
    assert len(task.figures(measured)[0].series) == 5


class _Flaky(Radius):
    """Fails at one seed until it is mended, and counts what it measures."""

    made = 0
    broken = True

    def measure(self, cell) -> Factors:
        type(self).made += 1
        if cell.seed == 2 and self.broken:
            raise UserError("the machine is on fire")
        return super().measure(cell)


@pytest.fixture
def flaky(monkeypatch):
    _Flaky.made, _Flaky.broken = 0, True
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", _Flaky(steps=60, width=16))
    return _Flaky


def test_reproduce_resumes_at_missing_trials(flaky, tmp_path):
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
    assert second.checks[0].mean == pytest.approx(mean(second.checks[0].by_seed.values()))
    assert read(tmp_path / RESULT) == second
    assert "also measured by" not in second.machine
    # what another version measured is named, and what it stored in another way is refused
    one, two, _ = sorted((tmp_path / "cells").glob("*.json"))
    stored = json.loads(one.read_text())
    one.write_text(json.dumps(stored | {"code": "s2s 0.1"}))
    third = reproducing.reproduce("radius", tmp_path, 3, lines.append)
    by = f"{stored['machine']}, s2s 0.1"
    assert third.machine["also measured by"] == by
    assert [line.strip().split(":")[0] for line in lines if line.endswith(f", stored before: {by}")] == [one.stem]
    for other in ({"other": 1}, stored["measured"] | {"measured": {"other": 1}}):
        two.write_text(json.dumps(stored | {"cell": two.stem, "measured": other}))
        with pytest.raises(UserError, match=rf"{two.name}: has other fields than(.|\n)*delete it"):
            reproducing.reproduce("radius", tmp_path, 3, lines.append)


def test_reproduce_command_prints_and_draws_the_result(monkeypatch, tmp_path):
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", Radius(steps=100, width=24))
    out = tmp_path / "radius"
    done = CliRunner().invoke(commands, ["reproduce", "radius", "--seeds", "3", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "radius: reproduced" in done.output
    # what it costs is said before it begins
    assert done.output.index("cost:") < done.output.index("rnn--seed1")
    page = (out / "report.html").read_text()
    assert "Pascanu" in page
    assert "<svg" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    result = read(out / RESULT)
    assert result.command == "s2s reproduce radius --seeds 3"
    assert result.seeds == [1, 2, 3]
    assert 0 < result.core_seconds < 60
    assert result.machine["processor"]


def test_reproduce_command_reports_a_failed_reproduction(monkeypatch, tmp_path):
    wrong = Band(key="ratio", what="ratio", published="2", low=1.9, high=2.1)
    monkeypatch.setattr(Radius, "bands", (wrong, *Radius.bands[1:]))
    monkeypatch.setitem(reproducing.REPRODUCTIONS, "radius", Radius(steps=60, width=16))
    done = CliRunner().invoke(commands, ["reproduce", "radius", "--seeds", "3", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "radius: not reproduced; 3 of 4 numbers reproduced" in done.output
    assert "Not reproduced; 3 of 4" in (tmp_path / "report.html").read_text()


def test_reproduce_command_lists_all_and_refuses_unknown_names(tmp_path):
    listed = CliRunner().invoke(commands, ["reproduce"]).output.splitlines()
    assert sorted(line.split()[0] for line in listed[1:]) == sorted(reproducing.REPRODUCTIONS)
    done = CliRunner().invoke(commands, ["reproduce", "--verbose"])
    assert done.exit_code == 0
    for name in reproducing.REPRODUCTIONS:
        assert f"{name}: " in done.output
    assert done.output.count("  source: ") == len(reproducing.REPRODUCTIONS)
    wrong = CliRunner().invoke(commands, ["reproduce", "raduis", "--out", str(tmp_path)])
    assert isinstance(wrong.exception, UserError)
    assert "radius" in str(wrong.exception)
    assert not list(tmp_path.iterdir())


def test_band_is_closed_and_finite():
    band = Band(key="a", what="", published="", low=1.0, high=2.0)
    assert [band.holds(value) for value in (0.99, 1.0, 2.0, 2.01)] == [False, True, True, False]
    above = Band(key="a", what="", published="", low=1.0)
    assert not above.holds(math.inf)
    assert not above.holds(math.nan)
    assert (str(band), str(above)) == ("1 to 2", "≥ 1")


def test_reproduced_refuses_damaged_files(tmp_path):
    (tmp_path / RESULT).write_text("{}")
    with pytest.raises(UserError, match="no reproduction that this version reads"):
        read(tmp_path / RESULT)


def _check(values, **band):
    """The check of a number, with one validity check that the seeds above 10 fail."""

    class _Given(Radius):
        bands = (
            Band(key="number", what="", published="", valid_if=("valid",), **band),
            Band(key="valid", what="", published="", high=10.0, validity=True),
        )

        def numbers(self, measured):
            return {"number": values, "valid": {seed: float(seed) for seed in values}}

    return reproducing.checks(_Given(), {})[0]


def test_outcome_is_decided_by_the_interval_over_seeds():
    # Student's interval of 1, 2, 3 is 2 ± 4.303 / √3
    half = 4.302653 / math.sqrt(3)
    check = _check({1: 1.0, 2: 2.0, 3: 3.0}, low=2 - half - 1e-5, high=2 + half + 1e-5)
    assert check.interval == pytest.approx((2 - half, 2 + half), abs=1e-5)
    assert (check.mean, check.outcome, check.state) == (2.0, "reproduced", "reproduced")
    assert _check({1: 1.0, 2: 2.0, 3: 3.0}, low=2 - half + 1e-5).state == "undecided: the interval crosses the band"
    assert _check({1: 1.0, 2: 2.0, 3: 3.0}, low=2 + half + 1e-5).outcome == "not reproduced"
    assert _check({1: 1.0, 2: 2.0, 3: 3.0}, high=2 - half - 1e-5).outcome == "not reproduced"


def test_outcome_needs_three_seeds_that_pass_the_validity_check():
    assert _check({1: 2.0, 2: 2.0}, low=1.0).state == "undecided: 2 voting seeds of at least 3"
    # the value of a seed without a vote counts for nothing
    with_invalid, without = (
        _check({1: 2.0, 2: 2.1, 3: 2.0, 11: -50.0}, low=1.0),
        _check({1: 2.0, 2: 2.1, 3: 2.0}, low=1.0),
    )
    assert with_invalid.voters == without.voters == [1, 2, 3]
    assert (with_invalid.mean, with_invalid.interval) == (without.mean, without.interval)
    assert with_invalid.outcome == "reproduced"
    assert _check({1: 2.0, 2: 2.0, 11: 2.0}, low=1.0).outcome == "undecided"
    assert str(_check({11: 2.0}, low=1.0)) == "no valid seed"
    assert _check({1: 3.0}, high=3.0, deterministic=True).outcome == "reproduced"
    assert _check({1: 3.1}, high=3.0, deterministic=True).outcome == "not reproduced"


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ("rr", "reproduced in small"),
        ("ru", "undecided in small; 1 of 2 numbers reproduced"),
        ("nu", "not reproduced in small; 0 of 2 numbers reproduced"),
    ],
)
def test_verdict_names_the_setting_and_counts_numbers(outcomes, expected):
    values = {"r": 0.5, "n": 5.0, "u": 1.0}
    band, valid = (Band(key=key, what="", published="", high=1.0, validity=key == "v") for key in "av")
    checks = [
        Check(band=band, mean=values[o], interval=(values[o], values[o] * 1.1), by_seed={}, voters=[1, 2, 3])
        for o in outcomes
    ]
    checks.append(Check(band=valid, mean=9.0, interval=None, by_seed={1: 9.0, 2: 0.0}, voters=[1, 2]))
    assert checks[-1].state == "validity check: 1 of 2 seeds pass"
    text = {"finding": "", "source": "", "method": "", "setting": "in small", "command": ""}
    result = Reproduced(
        name="x", expected=(1, 2), checks=checks, seeds=[1], seconds=1, core_seconds=1, machine={}, **text
    )
    assert result.verdict == expected


def test_counting_seed_that_has_not_learned_has_no_vote():
    curve = LossCurve([1], [0.1], None)
    measured = {
        Trial(kind, seed=seed): Reach(curve, reach, right)
        for kind in ("lstm", "gru")
        for seed, reach, right in ((1, 1.0, 1.0), (2, 1.2, 1.0), (3, 0.04, 0.48))
    }
    checks = {check.band.key: check for check in reproducing.checks(Counting(), measured)}
    assert (checks["gru"].voters, checks["gru"].outcome) == ([1, 2], "undecided")
    assert checks["gru-learned"].state == "validity check: 2 of 3 seeds pass"


def test_dilated_convolution_sees_its_receptive_field_and_nothing_later():
    torch.manual_seed(1)
    model = DilatedConvolution(symbols=5, outputs=3, width=8, kernel=3, levels=3)
    source = torch.randint(5, (1, 60), generator=torch.Generator().manual_seed(1))
    changed = source.clone()
    changed[0, 20] = (changed[0, 20] + 1) % 5
    moved = (model(source) != model(changed)).any(dim=2)[0].nonzero()[:, 0].tolist()
    # 1 + 2 (3 − 1) (2³ − 1) positions
    assert (moved[0], moved[-1]) == (20, 20 + 28)


def test_reproduce_refuses_a_locked_folder(tmp_path):
    with run_lock(tmp_path), pytest.raises(UserError, match="another process is measuring in it"):
        reproducing.reproduce("radius", tmp_path, 1, lambda line: None)
    assert list((tmp_path / "cells").iterdir()) == []
    # the lock is given back, and does not stand in the way
    assert not [path for path in tmp_path.iterdir() if path.name == "reproduction.json"]


def test_reproduce_leaves_other_folders_alone(tmp_path):
    (tmp_path / "report.html").write_text("precious")
    with pytest.raises(UserError, match="is not the folder of a reproduction"):
        reproducing.reproduce("depth", tmp_path, None, print)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert (tmp_path / "report.html").read_text() == "precious"
