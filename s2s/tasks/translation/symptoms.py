"""Signs in what a translator writes, and whether it reads, and what its search misses."""

import datasets
import numpy as np
import torch
from jaxtyping import Int

from s2s.data.batches import collate_sources
from s2s.data.encoding import Encoded, encode_corpus
from s2s.data.examples import sent
from s2s.data.tokenizers import EOS, UNK
from s2s.decoding.beam import Hypothesis
from s2s.evaluation.gates import SOURCE, uses_its_source
from s2s.evaluation.metrics import metrics, score
from s2s.evaluation.signs import Sign, Symptoms, Worst, plain_sign, share_sign
from s2s.evaluation.signs.pieces import entropy, unknown
from s2s.evaluation.signs.texts import text_signs
from s2s.models.contract import Seq2Seq
from s2s.tasks.contract import TOKENIZER, Loaded
from s2s.tasks.lines import Seen
from s2s.tasks.translation.evaluation import translator_of
from s2s.tasks.translation.recipe import Recipe
from s2s.tasks.translation.source_use import source_use
from s2s.tasks.writing import collapsed, sequence_scores
from s2s.training.progress import Meter

WORST = 10


def symptoms(
    run: Loaded[Recipe, Seq2Seq], part: datasets.Dataset, rows: Int[np.ndarray, " pairs"], meter: Meter
) -> Symptoms:
    """Translates a part, whose pairs have these rows in their split, and looks at what was written."""
    sources, references = list(part["source"]), list(part["target"])
    data = encode_corpus(part, run.tokenizers[0], run.tokenizers[-1])
    read, wanted = data.rows(np.arange(len(data)))
    with meter("translating", len(sources)) as advance:
        translations = list(translator_of(run).translate(sources, advance))
    outputs = [translation.text for translation in translations]
    best = [t.candidates[0].hypothesis if t.candidates else None for t in translations]
    seen = Seen.load(run.checkpoint / TOKENIZER)
    found = score(outputs, references)
    return Symptoms(
        summary=f"{len(sources):,} sentences: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f}, "
        f"exact {found['exact']:.2f} %",
        signs=[
            *text_signs(sources, outputs, references, sum(h is not None and h.cut for h in best)),
            collapsed(sources, outputs),
            _source_ignored(run, data),
            unknown(np.concatenate(read), UNK, seen.pieces if seen else None),
            search_errors(run, data, best),
        ],
        worst=_worst(sources, outputs, references, rows),
        ignorant=entropy(np.concatenate([*wanted, np.full(len(wanted), EOS)])),
    )


def _source_ignored(run: Loaded[Recipe, Seq2Seq], data: Encoded) -> Sign:
    name = "ignores the source"
    remedy = (
        "train for longer (training.updates), lower training.learning_rate, raise training.warmup, and look for "
        "misaligned pairs with `s2s data check`"
    )
    worth = source_use(run.model, data, run.recipe.batches, run.computer)
    if worth is None:
        return plain_sign(name, False, "there are no two different sources to exchange", 0.0, "", remedy)
    gate = uses_its_source(worth.right, worth.exchanged)
    said = f"of {worth.pairs:,} pairs, {gate.sentence}"
    threshold = (
        f"where sources are worth less than {SOURCE:g} nats per target piece: what comparisons ask of a translator"
    )
    return plain_sign(name, not gate.passed, said, worth.exchanged - worth.right, threshold, remedy)


@torch.inference_mode()
def search_errors(run: Loaded[Recipe, Seq2Seq], data: Encoded, best: "list[Hypothesis | None]") -> Sign:
    """References that score more than what was found: the search missed them. Elsewhere the model prefers the wrong."""
    translator = translator_of(run)
    read, wanted = data.rows(np.arange(len(data)))
    wrong = [i for i, h in enumerate(best) if h is not None and list(h.tokens) != wanted[i].tolist()]
    # what is longer than the model knows cannot be scored
    most = run.model.decoder.longest
    wrong = [i for i in wrong if most is None or len(wanted[i]) < most]
    missed, size = 0, run.recipe.decoding.batch
    order = sorted(wrong, key=lambda i: len(wanted[i]))
    for rows in (order[first : first + size] for first in range(0, len(order), size)):
        source, valid = (sent(t, translator.device) for t in collate_sources([read[i] for i in rows]))
        each = sequence_scores(run.model, source, valid, [wanted[i].tolist() for i in rows]).tolist()
        for i, log_probability in zip(rows, each, strict=True):
            hypothesis = best[i]
            # rounding alone is no error
            if (
                hypothesis is not None
                and log_probability / translator.beam.penalty(len(wanted[i]) + 1) > hypothesis.score + 1e-4
            ):
                missed += 1
    return share_sign(
        "search errors",
        missed,
        len(wrong),
        "wrong outputs score less than their reference, which the search missed (the model is wrong in the others)",
        10,
        "a wider beam costs little, and finds most of them",
        f"raise decoding.beam above {run.recipe.decoding.beam}",
    )


def _worst(sources: list[str], outputs: list[str], references: list[str], rows: np.ndarray) -> list[Worst]:
    metric = metrics(names=("chrf",))["chrf"]
    scores = [metric.sentence_score(o, [r]).score for o, r in zip(outputs, references, strict=True)]
    order = sorted(range(len(scores)), key=lambda i: scores[i])[:WORST]
    return [Worst(sources[i], outputs[i], references[i], f"line {rows[i] + 1}, chrF {scores[i]:.1f}") for i in order]
