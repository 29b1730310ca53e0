"""Can the model learn one small batch by heart? If not, more data will not help: something is wrong."""

import math
import time
from collections.abc import Callable

import datasets
import numpy as np

from s2s.data.encoding import Encoded
from s2s.decoding.translator import Translator
from s2s.errors import UserError
from s2s.evaluation.metrics import exact_share
from s2s.models.contract import Seq2Seq
from s2s.tasks.translation.prepared import Prepared, prepare
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.task import TASK, build_model, mean_loss, translation_trainer
from s2s.training.devices import choose
from s2s.training.divergence import astray

_PAIRS = 16
_UPDATES = 800
_BY_HEART = 90  # per cent of translations; one of 16 may go wrong


def overfit(recipe: Recipe, say: Callable[[str], None]) -> None:
    """Trains on the same 16 pairs of middling length, again and again, until they are known by heart.

    Everything is as the recipe says, but for label smoothing, averaging and the schedule after its warm-up, which would
    keep a model from it; dropout stays, and is off when the model is asked. Nothing is kept.

    Raises:
        UserError: the pairs were not learned: model, rate or data do not fit together.
    """
    TASK.check(recipe)
    computer = choose(recipe.device)
    prepared = prepare(recipe, None, say)
    model = build_model(recipe, prepared.source_tokenizer.size, prepared.target_tokenizer.size).to(computer.device)
    chosen = _middling(prepared.train)
    data = _only(prepared.train, chosen)
    longest = int(max(data.source_lengths.max(), data.target_lengths.max()))
    batches = recipe.batches.model_copy(update={"tokens": longest * len(chosen), "max_length": longest})
    changes = {"updates": _UPDATES, "schedule": "constant", "label_smoothing": 0.0, "ema": None, "average_last": None}
    changes |= {"warmup": min(recipe.training.warmup, _UPDATES // 20), "tokens_per_update": None}
    training = recipe.training.model_copy(update=changes)
    trainer = translation_trainer(model, data, training, batches, recipe.seeds, computer)
    started = time.perf_counter()
    before = mean_loss(model, data, batches, computer)
    say(f"{len(chosen)} pairs, loss {before:.2f} before training")
    loss, exact = math.nan, 0.0
    while exact < _BY_HEART and trainer.update < _UPDATES:
        for _ in trainer.updates(trainer.update + _UPDATES // 8):
            pass
        loss, exact = mean_loss(model, data, batches, computer), _exact(model, prepared, recipe, chosen)
        say(f"update {trainer.update}: loss {loss:.3f}, {exact:.0f} % of the translations exact")
    if exact < _BY_HEART:
        if sign := astray(model, loss, max(before, math.log(prepared.target_tokenizer.size))):
            raise UserError(
                f"the training diverged: {sign}",
                where=f"{trainer.update} updates",
                remedy="lower training.learning_rate, lengthen training.warmup, or set training.clip",
            )
        raise UserError(
            f"{len(chosen)} pairs are not known by heart after {trainer.update} updates",
            remedy="raise training.learning_rate or the model's width, lower its dropout, and look at the pairs with "
            "`s2s data check`",
        )
    say(f"known by heart after {trainer.update} updates, {time.perf_counter() - started:.0f} s")


def _middling(data: Encoded) -> np.ndarray:
    """Rows of middling length: neither the easiest nor the dearest."""
    order = np.argsort(np.maximum(data.source_lengths, data.target_lengths), kind="stable")
    first = max(0, (len(order) - _PAIRS) // 2)
    return order[first : first + _PAIRS]


def _only(data: Encoded, chosen: np.ndarray) -> Encoded:
    pieces = datasets.List(datasets.Value("int32"))
    sources, targets = ([row.tolist() for row in rows] for rows in data.rows(chosen))
    features = datasets.Features({"source": pieces, "target": pieces})
    return Encoded(datasets.Dataset.from_dict({"source": sources, "target": targets}, features=features))


def _exact(model: Seq2Seq, prepared: Prepared, recipe: Recipe, chosen: np.ndarray) -> float:
    """Share of the pairs whose greedy translation is the target, as far as its pieces can spell it, in percent."""
    pairs = prepared.corpus.train.select(chosen)
    decoding = recipe.decoding.model_copy(update={"beam": 1})
    target = prepared.target_tokenizer
    translator = Translator(model, prepared.source_tokenizer, target, decoding)
    spelled = [target.decode(target.encode(text)) for text in pairs["target"]]
    return exact_share([t.text for t in translator.translate(pairs["source"])], spelled)
