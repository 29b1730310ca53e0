"""Saliency compared with slopes, linear models and attention by hand."""

import io

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from s2s.data.tokenizers import BOS, EOS, train
from s2s.inspection.positions import without_words
from s2s.inspection.saliency import (
    Reading,
    attention_on_words,
    gradient_times_input,
    integrated_gradients,
    on_words,
    rollout,
    score_of_class,
)
from s2s.inspection.words import Word, merge_to_words
from s2s.models.base import Classifier, Encoder, EncoderOutput, mean_over_valid
from s2s.recipe.installed import encoder_settings, module_of
from s2s.recipe.schema import PieceSettings
from s2s.tasks.figures import words_picture

SIZE = 30


class Bag(Encoder):
    """The mean of the words' vectors: linear in each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SIZE, 6)

    def read(self, vectors: Tensor, valid: Tensor) -> EncoderOutput:
        return EncoderOutput(vectors, valid, mean_over_valid(vectors, valid))


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(3)
    valid = torch.ones(3, 5, dtype=torch.bool)
    valid[1, 3:] = False
    return torch.randint(4, SIZE, (3, 5)), valid


def _classifier(kind: str, pooling: str) -> Classifier:
    torch.manual_seed(0)
    settings = encoder_settings(kind)(kind=kind, width=8)
    encoder, width = module_of(kind).build_encoder(settings, SIZE)
    return Classifier(encoder, width, 4, pooling, dropout=0.5).double().eval()


def test_saliency_words_of_a_linear_model_add_up_to_its_score(batch):
    source, valid = batch
    torch.manual_seed(0)
    classifier = Classifier(Bag(), 6, 4, "mean").double().eval()
    label = torch.tensor([2, 0, 3])
    found = gradient_times_input(classifier, source, valid, label)
    weight = classifier.head.weight[label] - classifier.head.weight.mean(0)
    terms = (classifier.encoder.embedding(source) * weight[:, None]).sum(2) * valid / valid.sum(1, keepdim=True)
    torch.testing.assert_close(found, terms)
    scores = classifier(source, valid)
    bias = classifier.head.bias[label] - classifier.head.bias.mean()
    torch.testing.assert_close(found.sum(1) + bias, scores.gather(1, label[:, None])[:, 0] - scores.mean(1))


@pytest.mark.parametrize(("kind", "pooling"), [("transformer", "first"), ("lstm", "summary"), ("conv", "attention")])
def test_saliency_gradient_times_input_is_the_slope_of_the_score_as_a_word_fades(kind, pooling, batch):
    source, valid = batch
    classifier, label = _classifier(kind, pooling), torch.tensor([2, 0, 3])
    found = gradient_times_input(classifier, source, valid, label)
    assert all(p.grad is None for p in classifier.parameters())
    vectors = classifier.encoder.embedding(source).detach()

    def score(factors: Tensor) -> Tensor:
        scores = classifier.classify(classifier.encoder.read(vectors * factors.unsqueeze(2), valid))
        return scores.gather(1, label[:, None])[:, 0] - scores.mean(1)

    step, ones = 1e-5, torch.ones(3, 5, dtype=torch.float64)
    for place in range(5):
        change = torch.zeros_like(ones)
        change[:, place] = step
        with torch.no_grad():
            slope = (score(ones + change) - score(ones - change)) / (2 * step)
        torch.testing.assert_close(found[:, place], slope, atol=1e-8, rtol=1e-4)
    assert found[~valid].abs().sum() == 0


def test_saliency_attention_is_rolled_out_as_multiplied_by_hand():
    torch.manual_seed(0)
    weights = torch.rand(2, 3, 4, 5, 5, dtype=torch.float64).softmax(-1)
    found = rollout(weights)
    for row in range(2):
        expected = torch.eye(5, dtype=torch.float64)
        for layer in range(3):
            expected = (0.5 * weights[row, layer].mean(0) + 0.5 * torch.eye(5)) @ expected
        torch.testing.assert_close(found[row], expected)
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 5, dtype=torch.float64))


@pytest.mark.parametrize("pooling", ["first", "mean", "attention"])
def test_saliency_attention_on_words_is_what_reached_the_pooled_states(pooling, batch):
    source, valid = batch
    classifier = _classifier("transformer", pooling)
    found = attention_on_words(classifier, source, valid)
    torch.testing.assert_close(found.sum(1), torch.ones(3, dtype=torch.float64))
    assert found[~valid].abs().sum() == 0
    reached = rollout(classifier.encoder.self_attention_weights(source, valid))
    if pooling == "first":
        torch.testing.assert_close(found, reached[:, 0])
    if pooling == "mean":
        torch.testing.assert_close(found[1], reached[1, :3].mean(0))


def test_saliency_recurrent_model_has_no_attention_to_show(batch):
    assert attention_on_words(_classifier("gru", "mean"), *batch) is None


@pytest.mark.parametrize("kind", ["unigram", "word", "char", "bytes"])
def test_saliency_words_are_the_texts_and_have_the_weight_of_their_pieces(kind):
    lines = ["The cats were sleeping, weren't they?", "The café was closed."] * 3
    tokenizer = train(
        lines, PieceSettings(kind=kind, size=30 if kind == "unigram" else 100, byte_fallback=False), "shared"
    )
    ids = [BOS, *tokenizer.encode(lines[1]), EOS]
    weights = [2.0**-i for i in range(len(ids))]
    words, sums = merge_to_words(tokenizer, ids, weights)
    assert words == ["<s>", "The", "café", "was", "closed.", "</s>"]
    assert sum(sums) == pytest.approx(sum(weights))
    assert (sums[0], sums[-1]) == (weights[0], weights[-1])
    first = 1 + len(tokenizer.encode("The"))
    assert sums[1] == pytest.approx(sum(weights[1:first]))


def test_saliency_unknown_word_is_a_word():
    tokenizer = train(["the cat sleeps"] * 3, PieceSettings(kind="word", size=10), "shared")
    ids = tokenizer.encode("the dog barks loudly")
    words, sums = merge_to_words(tokenizer, ids, [1.0, 2.0, 3.0, 4.0])
    assert (len(words), sums) == (4, [1.0, 2.0, 3.0, 4.0])


def test_saliency_picture_of_words_has_each_word_once_on_a_ground_as_dark_as_its_weight():
    words = [f"word{i}" for i in range(40)] + ["$x^", "日本", "_a", "z" * 300]
    weights = [float(i) for i in range(-20, 24)]
    figure = words_picture(
        [Reading("gradient", words, weights, "right: a $ 12 %"), Reading("gradient", [], [], "none")]
    )
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert [text for text in shown if text in words] == words[:-1]
    strengths = [patch.get_facecolor()[3] for patch in figure.axes[0].patches]
    assert strengths == pytest.approx([0.6 * abs(weight) / 23 for weight in weights])
    # no word reaches beyond the page
    assert max(patch.get_x() + patch.get_width() for patch in figure.axes[0].patches) < figure.axes[0].get_xlim()[1]
    words[41] = "plain"
    words_picture([Reading("attention", words, weights, "t")]).savefig(io.BytesIO(), format="png")
    assert str(Reading("gradient", ["a", "b"], [0.1, -2.0])) == "b -2.00 · a +0.10"


@pytest.mark.parametrize(("kind", "pooling"), [("transformer", "first"), ("lstm", "summary"), ("conv", "attention")])
def test_saliency_integrated_gradients_add_up_to_what_the_score_differs_from_the_baselines(kind, pooling, batch):
    source, valid = batch[0][:1], batch[1][:1]
    classifier = _classifier(kind, pooling)
    vectors = classifier.encoder.embedding(source).detach()
    baseline = without_words(classifier.encoder.embedding, vectors)
    score = score_of_class(classifier, valid, 2)
    shares, difference = integrated_gradients(score, vectors, baseline)
    due = float((score(vectors) - score(baseline)).detach())
    assert abs(due) > 1e-3
    assert float(shares.sum()) == pytest.approx(due, rel=0.01)
    assert difference == pytest.approx(abs(float(shares.sum()) - due), abs=1e-9)


@pytest.mark.parametrize(
    ("positions", "activation"), [("rope", "relu"), ("none", "relu"), ("none", "swiglu"), ("rope", "swiglu")]
)
def test_saliency_integrated_gradients_from_a_zero_baseline_are_those_of_many_small_steps(positions, activation):
    torch.manual_seed(0)
    settings = encoder_settings("transformer")(
        width=32, heads=2, feedforward=64, encoder_layers=2, encoder_positions=positions, activation=activation
    )
    encoder, width = module_of("transformer").build_encoder(settings, SIZE)
    classifier = Classifier(encoder, width, 3, "mean").eval()
    with torch.no_grad():
        for p in classifier.parameters():
            p += 0.1 * torch.randn_like(p)
    source = torch.tensor([[5, 9, 11, 4]])
    vectors = encoder.embedding(source).detach()
    baseline = without_words(encoder.embedding, vectors)
    assert not baseline.any()
    score = score_of_class(classifier, torch.ones_like(source, dtype=torch.bool), 1)
    # 5,000 midpoints, equally far apart by the logarithm of their distance from the baseline
    ends = torch.linspace(-8, 0, 5_001, dtype=torch.float64).mul(np.log(10)).exp()
    wanted = torch.zeros(4, dtype=torch.float64)
    for along, step in zip(((ends[1:] + ends[:-1]) / 2).split(1000), ends.diff().split(1000), strict=True):
        steps = (along.float()[:, None, None] * vectors).requires_grad_()
        (slopes,) = torch.autograd.grad(score(steps).sum(), steps)
        wanted += ((slopes * vectors).sum(2).double() * step[:, None]).sum(0)
    shares, _ = integrated_gradients(score, vectors, baseline)
    torch.testing.assert_close(shares.double(), wanted, atol=0.02 * float(wanted.abs().max()), rtol=0)


@pytest.mark.slow
def test_saliency_integrated_gradients_are_those_of_captum(batch):
    captum = pytest.importorskip("captum.attr")
    source, valid = batch[0][:1], batch[1][:1]
    classifier = _classifier("transformer", "mean")
    vectors = classifier.encoder.embedding(source).detach()
    baseline = without_words(classifier.encoder.embedding, vectors)
    score = score_of_class(classifier, valid, 1)
    found = captum.IntegratedGradients(score).attribute(vectors, baseline, n_steps=256)
    torch.testing.assert_close(integrated_gradients(score, vectors, baseline)[0], found[0].sum(1), rtol=0.01, atol=1e-3)


def test_integrated_gradients_of_a_linear_score_are_gradient_times_input_change():
    weight, vectors, baseline = (torch.randn(1, 5, 6, dtype=torch.float64) for _ in range(3))
    shares, difference = integrated_gradients(lambda read: (read * weight).sum((1, 2)), vectors, baseline)
    torch.testing.assert_close(shares, (weight * (vectors - baseline)).sum(2)[0])
    assert difference < 1e-9


def test_saliency_baseline_knows_places_and_no_words(batch):
    for positions in ("sinusoidal", "learned"):
        settings = encoder_settings("transformer")(width=8, heads=2, encoder_positions=positions)
        encoder, _ = module_of("transformer").build_encoder(settings, SIZE)
        with torch.no_grad():
            encoder.embedding.tokens.weight.zero_()
        vectors = encoder.embedding(batch[0])
        torch.testing.assert_close(without_words(encoder.embedding, vectors), vectors)
    bag = Bag()
    assert without_words(bag.embedding, bag.embedding(batch[0])).abs().sum() == 0


def test_saliency_words_have_the_sums_of_their_pieces_for_each_answer():
    words = [Word("a", (0, 2)), Word("b", (1,))]
    found = on_words("m", ["x", "y"], words, torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]]))
    assert found.weights.tolist() == [[5.0, 2.0], [40.0, 16.0]]
    assert (found.words, found.answers) == (["a", "b"], ["x", "y"])
