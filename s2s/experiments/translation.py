"""Translation models: whole runs that several experiments share, and short trainings that leave nothing behind."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from jaxtyping import Float
from rich.console import Console
from torch import Tensor, nn

from s2s.data.batches import collate, plan
from s2s.data.encoding import Encoded
from s2s.data.tokenizers import EOS
from s2s.experiments.contest import Contest, check_translates
from s2s.experiments.matching import solved, translators
from s2s.experiments.operations import counted_flops, unfused
from s2s.experiments.short_training import prepared
from s2s.experiments.whole_runs import pauses, seeds_of, tested, whole_run
from s2s.experiments.workload import plain_form
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import BatchSettings, Recipe, Section
from s2s.run.course import plain, start
from s2s.run.evaluation import evaluate_run
from s2s.run.loading import build_model
from s2s.run.preparing import Prepared
from s2s.run.training import resume
from s2s.run.translation import course
from s2s.training.devices import Computer
from s2s.training.loss import cross_entropy
from s2s.training.trainer import Trainer
from s2s.training.translation import translation_trainer


@dataclass(frozen=True)
class Point:
    """A validation of a run.

    Attributes:
        update: after which update.
        tokens: target tokens learned from before it.
        seconds: that the updates before it took; validations are not counted.
        loss: nats per target token.
        bleu: of greedy translations, in percent.
    """

    update: int
    tokens: int
    seconds: float
    loss: float
    bleu: float


def trained(contest: Contest, model: str, seed: int) -> Path:
    """The folder of a contestant's finished translation run; trained only where it is not finished yet.

    Args:
        contest: gives the recipe and the folder.
        model: whose.
        seed: of initialisation, order and dropout.

    Raises:
        NotForThisModel: the model cannot translate.
        UserError: the training failed.
    """

    def begin(recipe: Recipe[Any], console: Console) -> None:
        """A new run."""
        check_translates(build_model(recipe, *recipe.tokenizer.sizes), model)
        start(course(recipe, plain(console), prepared=prepared(recipe)), console)

    return whole_run(contest, model, seed, prepared, begin, resume)


def evaluation_of(folder: Path) -> dict[str, Any]:
    """A finished run's scores and translations of the test set; of the validation set where it has no test set."""
    return tested(folder, lambda: evaluate_run(folder, "validation").to_json())


def curve_of(folder: Path) -> list[Point]:
    """All validations of a run, in the order of time."""
    return [
        Point(each.update, each.tokens, each.seconds, each.scores["loss"], each.scores["bleu"])
        for each in pauses(folder)
    ]


def trainer_for(
    recipe: Recipe[Any],
    pieces: tuple[int, int],
    data: Encoded,
    seed: int,
    computer: Computer,
    start: Mapping[str, Tensor] | None = None,
) -> Trainer:
    """A trainer of a recipe's model that has done nothing yet.

    Args:
        recipe: the model, its optimisation and its batches.
        pieces: sizes of the vocabularies of source and target.
        data: the training pairs.
        seed: of initialisation, order and dropout.
        computer: device and precision.
        start: weights to begin with, by name; None: those that the seed gives.

    Raises:
        NotForThisModel: the model cannot translate.
    """
    seeds = seeds_of(seed)
    model = build_model(recipe.model_copy(update={"seeds": seeds}), *pieces)
    check_translates(model, recipe.model.kind)
    if start is not None:
        put(model, start)
    return translation_trainer(model.to(computer.device), data, recipe.training, recipe.batches, seeds, computer)


@dataclass(frozen=True)
class Schooled:
    """A model after a short training.

    Attributes:
        model: with the weights that decide: the average, where one is made.
        seconds: that its updates took.
        tokens: target tokens that it learned from.
    """

    model: Seq2Seq
    seconds: float
    tokens: int


def schooled(recipe: Recipe[Any], data: Prepared, seed: int, computer: Computer) -> Schooled:
    """Trains a fresh model as its recipe says, without validations and checkpoints.

    Args:
        recipe: the recipe.
        data: its corpus.
        seed: of initialisation, order and dropout.
        computer: device and precision.

    Raises:
        NotForThisModel: the model cannot translate.
        UserError: the training failed.
    """
    trainer = trainer_for(recipe, sizes_of(data), data.train, seed, computer)
    began = time.perf_counter()
    tokens = sum(update.tokens for update in trainer.updates(recipe.training.updates))
    seconds = time.perf_counter() - began
    put(trainer.model, deciding(trainer))
    return Schooled(trainer.model, seconds, tokens)


def sizes_of(data: Prepared) -> tuple[int, int]:
    """Sizes of the vocabularies of source and target."""
    return data.source_tokenizer.size, data.target_tokenizer.size


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights, by name."""
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def put(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Gives a model these weights."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])


def deciding(trainer: Trainer) -> dict[str, Tensor]:
    """The weights that would be kept now: the average, where one is made."""
    with trainer.optimization.averaged():
        return weights_of(trainer.model)


def pair_losses(
    model: Seq2Seq, data: Encoded, batches: BatchSettings, computer: Computer
) -> Float[np.ndarray, " pairs"]:
    """Cross-entropy of each pair, in nats, summed over its target tokens; dropout off.

    Args:
        model: on the computer's device.
        data: the pairs.
        batches: how they become batches.
        computer: device and precision.
    """
    model.eval()
    found = np.zeros(len(data))
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    with torch.no_grad(), computer.mixed_precision():
        for rows in plan(data.source_lengths, data.target_lengths, max(batches.tokens, longest), 0, 0):
            batch = collate(*data.rows(rows), rows).to(computer.device)
            scores = model.logits(batch.source, batch.source_valid, batch.target_in).float()
            each = nn.functional.cross_entropy(scores.transpose(1, 2), batch.target_out, reduction="none")
            found[rows] = (each * batch.target_valid).sum(dim=1).cpu().double().numpy()
    return found


def unigram_loss(train: Encoded, held_out: Encoded, pieces: int) -> float:
    """The loss of one who knows how often each piece occurs, and nothing else, in nats per target token.

    Args:
        train: pairs whose target pieces are counted, each once more than it occurs.
        held_out: pairs whose targets are told.
        pieces: size of the vocabulary.
    """
    counted, told = (_piece_counts(data, pieces) for data in (train, held_out))
    shares = (counted + 1) / (counted + 1).sum()
    return float(-(told * np.log(shares)).sum() / told.sum())


def _piece_counts(data: Encoded, pieces: int) -> np.ndarray:
    counts = np.bincount(np.concatenate(data.rows(np.arange(len(data)))[1]), minlength=pieces)
    counts[EOS] += len(data)
    return counts


def chosen_pairs(data: Encoded, rows: np.ndarray, swapped: bool = False) -> Encoded:
    """Some of the pairs, in that order.

    Args:
        data: the pairs.
        rows: which.
        swapped: whether source and target change places.
    """
    sources, targets = ([row.tolist() for row in side] for side in data.rows(rows))
    if swapped:
        sources, targets = targets, sources
    pieces = datasets.List(datasets.Value("int32"))
    features = datasets.Features({"source": pieces, "target": pieces})
    return Encoded(datasets.Dataset.from_dict({"source": sources, "target": targets}, features=features))


def resized(settings: Section, kind: str, pieces: tuple[int, int], parameters: int) -> Section:
    """A model's settings at another size: everything but its width stays.

    Args:
        settings: those that it has.
        kind: the model.
        pieces: sizes of the vocabularies of source and target.
        parameters: the wanted number.

    Raises:
        UserError: no width comes within 5 %.
    """
    given = settings.model_dump()
    options = {key: value for key, value in given.items() if key not in ("kind", "width", "feedforward")}
    if "feedforward" in given and "width" in given:
        options["feedforward_ratio"] = given["feedforward"] / given["width"]
    return solved(kind, translators(*pieces), parameters, options)


def flops_per_token(recipe: Recipe[Any], pieces: tuple[int, int], data: Encoded) -> float:
    """Floating-point operations of the matrix products that training spends on a target token, forward and backward.

    They are counted on a batch of middling place in the plan, on the form of the model in which no kernel hides what it
    does; work on padding counts, padding itself is no token.

    Args:
        recipe: the model and its batches.
        pieces: sizes of the vocabularies.
        data: training pairs.
    """
    settings, form = recipe.model, plain_form(recipe.model)
    if form.attention is not None:
        settings = type(settings).model_validate(settings.model_dump() | {"attention": form.attention})
    model = build_model(recipe.model_copy(update={"model": settings}), *pieces).eval()
    kept, _ = data.within(recipe.batches.max_length)
    batches = plan(data.source_lengths[kept], data.target_lengths[kept], recipe.batches.tokens, 0, 0)
    rows = kept[batches[len(batches) // 2]]
    batch = collate(*data.rows(rows), rows)
    with unfused(), counted_flops() as flops:
        states = model(batch.source, batch.source_valid, batch.target_in)
        cross_entropy(states, model.projection.weight, batch.target_out, batch.target_valid)[0].backward()
    return flops.get_total_flops() / batch.tokens
