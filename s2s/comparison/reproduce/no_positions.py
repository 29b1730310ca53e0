"""Language models without position embeddings: causal ones hardly need them, masked ones do (Haviv et al. 2022)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from operator import truediv

import torch
from jaxtyping import Int
from torch import Tensor, nn

from s2s.comparison.reproduce.contract import Numbers, Reproduction, by_seed, paired
from s2s.comparison.reproduce.training import (
    Budget,
    LossCurve,
    NextToken,
    TextClassifier,
    curves_figure,
    encoder_of,
    heldout_generator,
    target_cross_entropy,
    train,
)
from s2s.comparison.reproduced import Band
from s2s.comparison.results import Figure
from s2s.comparison.spec import Trial
from s2s.data.phrasebook import phrases
from s2s.data.synthetic_tasks import NO_LABEL
from s2s.data.tokenizers import train as train_tokenizer
from s2s.recipe.schema import PieceSettings

_BUDGET = Budget(updates=2_000, rate=0.004, every=100, warmup=100, decay=0.5)
_TOKENS = PieceSettings(size=1_000)
_CAUSAL, _MASKED = "causal", "masked"
_WITH, _WITHOUT = "sinusoidal", "none"


@dataclass(frozen=True)
class TrainedLM:
    """A training, and its held-out perplexity."""

    curve: LossCurve
    perplexity: float


@cache
def _texts(train_size: int, heldout_size: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of the English sentences of the built-in corpus, one after the other: training, held out."""
    lines = [[phrase.source for phrase in phrases(*part)] for part in (("train", train_size), ("test", heldout_size))]
    tokenizer = train_tokenizer(lines[0], _TOKENS, "source")
    both = [torch.tensor(list(chain.from_iterable(map(tokenizer.encode, part)))) for part in lines]
    return both[0], both[1]


@dataclass(frozen=True)
class NoPositions(Reproduction[TrainedLM]):
    """Causal and masked Transformer language models, with sinusoidal position embeddings and without any."""

    name = "no-positions"
    finding = "A causal language model hardly needs position embeddings; a masked one fails without them."
    source = (
        "Haviv et al. 2022, abstract: causal Transformer language models without position embeddings are competitive, "
        "because the causal mask shows positions. Perplexities of 20.97 without and 20.16 with sinusoidal ones "
        "(WikiText-103), and of 147.18 and 4.07 for masked models (another corpus): not verified"
    )
    method = (
        "English sentences of the built-in corpus, 20,000 in training, as one text of 1,000 subwords. Transformers of "
        "width 64 with three layers read windows of 32 tokens and predict each next token, or 15 % of the tokens, "
        "which are masked. Adam at 0.004, 2,000 updates of 64 windows. Measured: perplexity in 512 held-out windows. "
        "Publication: natural text, and models with hundreds of millions of parameters. Sizes were chosen on seed 100, "
        "which is not measured."
    )
    setting = "with three layers, and text of a grammar"
    bands = (
        Band(
            key=_CAUSAL,
            what="perplexity without positions / with sinusoidal ones, causal",
            published="1.04 (20.97/20.16)",
            high=1.2,
        ),
        Band(
            key=_MASKED,
            what="perplexity without positions / with sinusoidal ones, masked",
            published="36 (147.18/4.07)",
            low=2.0,
        ),
    )
    seconds = (900, 3_600)

    width: int = 64
    layers: int = 3
    sentences: int = 20_000
    heldout: int = 1_000
    share: float = 0.15
    length: int = 32
    rows: int = 64
    windows: int = 512
    budget: Budget = _BUDGET

    def trials(self, seeds: Sequence[int]) -> list[Trial]:
        parts = [f"{kind}-{positions}" for kind in (_CAUSAL, _MASKED) for positions in (_WITH, _WITHOUT)]
        return [Trial("transformer", part, seed) for seed in seeds for part in parts]

    def measure(self, trial: Trial) -> TrainedLM:
        """Train a language model and test it on held-out text."""
        seed, (kind, positions) = trial.seed or 0, trial.part.split("-")
        training, held_out = _texts(self.sentences, self.heldout)
        model = self.build(kind, positions, seed)

        def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            return self.batch(kind, training, self.rows, generator)

        curve = train(model, draw, target_cross_entropy, self.budget, seed)
        with torch.no_grad():
            tokens, targets = self.batch(kind, held_out, self.windows, heldout_generator(seed))
            loss = float(target_cross_entropy(model(tokens), targets))
        return TrainedLM(curve, math.exp(loss))

    def build(self, kind: str, positions: str, seed: int) -> nn.Module:
        """Build a causal or a masked language model; the mask token is the last one of the masked model."""
        options = {"width": self.width, "heads": 4, "feedforward": 2 * self.width}
        if kind == _CAUSAL:
            own = {"decoder_layers": self.layers, "decoder_positions": positions}
            return NextToken(_TOKENS.size, seed, options | own)
        own = {"encoder_layers": self.layers, "encoder_positions": positions}
        return TextClassifier(*encoder_of("transformer", _TOKENS.size + 1, seed, options | own), _TOKENS.size)

    def batch(
        self, kind: str, text: Int[Tensor, " tokens"], rows: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Draw windows of a text; the targets are the next tokens, or the masked ones."""
        starts = torch.randint(len(text) - self.length, (rows, 1), generator=generator)
        window = text[starts + torch.arange(self.length + 1)]
        if kind == _CAUSAL:
            return window[:, :-1], window[:, 1:]
        tokens = window[:, :-1]
        masked = torch.rand(tokens.shape, generator=generator) < self.share
        return tokens.masked_fill(masked, _TOKENS.size), tokens.masked_fill(~masked, NO_LABEL)

    def numbers(self, measured: Mapping[Trial, TrainedLM]) -> Numbers:
        found = {}
        for kind in (_CAUSAL, _MASKED):
            without, with_positions = (
                by_seed(measured, lambda run: run.perplexity, "transformer", f"{kind}-{positions}")
                for positions in (_WITHOUT, _WITH)
            )
            found[kind] = paired(without, with_positions, truediv)
        return found

    def figures(self, measured: Mapping[Trial, TrainedLM]) -> list[Figure]:
        curves = {trial: run.curve for trial, run in measured.items()}
        return [curves_figure("Training loss of language models with and without positions", curves, "nats per token")]
