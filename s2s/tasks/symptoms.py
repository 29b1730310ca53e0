"""Signs of problems in the outputs of sequence-to-sequence models and classifiers, and pairs for `s2s inspect`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from s2s.data.batches import collate, collate_sources
from s2s.data.dataset import to_device
from s2s.data.pairs import prefixed, with_prefix
from s2s.data.tokenized import encode_corpus
from s2s.data.tokenizers import EOS, UNK
from s2s.decoding.beam_search import Beam
from s2s.decoding.constraints import Constraints, copy_penalties
from s2s.decoding.generate import Translation, describe_collapse
from s2s.errors import UserError
from s2s.evaluation import classification as measures
from s2s.evaluation import signs
from s2s.evaluation.gates import SOURCE, uses_its_source
from s2s.evaluation.metrics import metrics, score
from s2s.evaluation.signs import WORST, Diagnostics, Finding, WorstExample, plain_sign, share_sign
from s2s.evaluation.tokenization import choose_tokenization
from s2s.inspection.seq2seq import Pair, source_of
from s2s.inspection.words import words_of
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import PairRecipe
from s2s.recipe.schema import BleuTokenizer, SearchRecipe
from s2s.tasks.base import TOKENIZER, LoadedModel
from s2s.tasks.coverage import VocabularyCoverage
from s2s.tasks.seq2seq import build_translator, check_fits, translate_texts
from s2s.tasks.source_use import SourceUse, source_use, token_scores
from s2s.training.progress import ProgressBar

if TYPE_CHECKING:
    import datasets


def pair_symptoms(
    run: LoadedModel[PairRecipe, Seq2Seq],
    part: "datasets.Dataset",
    places: Sequence[str],
    progress_bar: ProgressBar,
    prefix: str,
    tokenizer: BleuTokenizer,
) -> Diagnostics:
    """Translate pairs and return signs of problems in the outputs.

    Args:
        part: Pairs, without prefix.
        places: Place of each pair in its split, as text.
        tokenizer: sacreBLEU tokenizer for BLEU.

    Returns:
        Scores, signs and the worst outputs.
    """
    sources, references = list(part["source"]), list(part["target"])
    data = encode_corpus(prefixed(part, prefix), run.tokenizers[0], run.tokenizers[-1])
    read, wanted = data.rows(np.arange(len(data)))
    translator = build_translator(run)
    with progress_bar("translating", len(sources)) as advance:
        translations = list(translator.translate([with_prefix(prefix, text) for text in sources], advance))
    outputs = [translation.text for translation in translations]
    seen = VocabularyCoverage.load(run.checkpoint / TOKENIZER)
    lowercase = run.tokenizers[-1].writes_lowercase
    found = score(outputs, references, lowercase, tokenization=choose_tokenization(references, tokenizer))
    return Diagnostics(
        summary=f"{len(sources):,} sentences: BLEU {found['bleu']:.2f}, chrF {found['chrf']:.2f}, "
        f"exact {found['exact']:.2f} %",
        signs=[
            *signs.text_signs(sources, outputs, references, sum(each.at_length_limit for each in translations)),
            collapsed(sources, outputs, references),
            source_ignored(source_use(run.model, data, run.recipe.batches, run.device_context)),
            signs.unknown(np.concatenate(read), UNK, seen.pieces if seen else None),
            search_errors(
                run,
                translator.beam,
                translations,
                [row.tolist() for row in wanted],
                lambda some: collate_sources([read[i] for i in some]),
            ),
        ],
        worst=worst_texts(sources, outputs, [[r] for r in references], places, lowercase),
        chance_loss=signs.entropy(np.concatenate([*wanted, np.full(len(wanted), EOS)])),
    )


def collapsed(sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]) -> Finding:
    """Return the sign for a model that gives the same output for different sources.

    `describe_collapse` makes the same check during training.
    """
    different, right = len(set(sources)), len(set(references))
    answers, empty = len(set(outputs)), sum(not text.strip() for text in outputs)
    return plain_sign(
        "says always the same",
        describe_collapse(sources, outputs, references) is not None,
        f"{answers:,} different outputs for {different:,} different sources, which have {right:,} different "
        f"references; {empty:,} outputs are empty",
        answers / max(1, different),
        "if outputs are fewer than a tenth of the sources and of the references, all equal, or mostly empty",
        "lower training.learning_rate, raise training.warmup, and look for misaligned pairs with `s2s data check`",
    )


def source_ignored(found: SourceUse | None, noun: str = "source") -> Finding:
    """Return the sign for a model that ignores its sources.

    Args:
        found: Losses with right and exchanged sources; None if no two sources differ.
    """
    name = f"ignores the {noun}"
    remedy = (
        "train for longer (training.updates), lower training.learning_rate, raise training.warmup, and look for "
        "misaligned pairs with `s2s data check`"
    )
    if found is None:
        return plain_sign(name, False, f"there are no two different {noun}s to exchange", 0.0, "", remedy)
    gate = uses_its_source(found.right, found.exchanged)
    said = f"of {found.pairs:,} pairs, {gate.sentence}".replace("sources", f"{noun}s")
    threshold = f"if the right {noun}s lower the loss by less than {SOURCE:g} nats per target token, as in comparisons"
    return plain_sign(name, not gate.passed, said, found.exchanged - found.right, threshold, remedy)


@torch.inference_mode()
def search_errors(
    run: LoadedModel[SearchRecipe, Seq2Seq],
    beam: Beam,
    written: Sequence[Translation],
    wanted: Sequence[list[int]],
    read: Callable[[list[int]], tuple[Shaped[Tensor, "batch ..."], Bool[Tensor, "batch source"]]],
) -> Finding:
    """Return the sign for search errors: references that score higher than the output.

    The search missed such a reference. For all other wrong outputs, the model itself prefers the wrong text. References
    that the constraints forbid are left out, but not those beyond the length limit; all are if outputs are sampled.

    Args:
        read: Returns sources and padding mask of some examples, by number.
    """
    best = [each.candidates[0].hypothesis if each.candidates else None for each in written]
    # References with more tokens than the decoder has positions cannot be scored.
    most, decoding = run.model.decoder.max_positions, run.recipe.decoding
    wrong = [
        i
        for i, h in enumerate(best)
        if h is not None and list(h.tokens) != wanted[i] and (most is None or len(wanted[i]) < most)
        if not decoding.sample and _is_allowed(wanted[i], beam.constraints)
    ]
    missed, size = 0, decoding.batch
    order = sorted(wrong, key=lambda i: len(wanted[i]))
    for rows in (order[first : first + size] for first in range(0, len(order), size)):
        source, valid = (to_device(t, run.device_context.device) for t in read(rows))
        each = token_scores(run.model, source, valid, [wanted[i] for i in rows]).sum(dim=1).tolist()
        if beam.copy_penalty:
            copies = copy_penalties(source, valid, beam.copy_penalty).tolist()
            each = [
                nats - sum(lost[token] for token in wanted[i] if token < len(lost))
                for i, nats, lost in zip(rows, each, copies, strict=True)
            ]
        for i, log_probability in zip(rows, each, strict=True):
            hypothesis = best[i]
            # The tolerance is for rounding.
            if hypothesis and log_probability / beam.penalty(len(wanted[i]) + 1) > hypothesis.score + 1e-4:
                missed += 1
    return share_sign(
        "search errors",
        missed,
        len(wrong),
        "wrong outputs score less than their reference, which the search missed (the model is wrong in the others)",
        10,
        "a wider beam costs little, and finds most of them",
        f"raise decoding.beam above {decoding.beam}",
    )


def _is_allowed(tokens: Sequence[int], constraints: Constraints) -> bool:
    """Return True if the constraints allow a text: long enough, and no repeated n-gram."""
    n = constraints.no_repeat_ngram
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)] if n else []
    return len(tokens) >= constraints.min_length and len(set(ngrams)) == len(ngrams)


def worst_texts(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    places: Sequence[str],
    lowercase: bool,
) -> list[WorstExample]:
    """Return the outputs with the lowest chrF, worst first, with the first of their references."""
    metric = metrics(lowercase, ("chrf",))["chrf"]
    scores = [metric.sentence_score(o, list(r)).score for o, r in zip(outputs, references, strict=True)]
    order = sorted(range(len(scores)), key=lambda i: scores[i])[:WORST]
    return [WorstExample(sources[i], outputs[i], references[i][0], f"{places[i]}, chrF {scores[i]:.1f}") for i in order]


def pair_of(
    run: LoadedModel[PairRecipe, Seq2Seq], text: str, output: str | None = None, prefix: str = "", remark: str = ""
) -> Pair:
    """Encode an input and its output for `s2s inspect`.

    Args:
        output: Output text; None generates the model's own output.
        remark: Remark to print with the output.

    Raises:
        UserError: The text is empty or too long.
    """
    if not text.strip():
        raise UserError("the sentence is empty", remedy="give one in quotes")
    one, into = run.tokenizers[0], run.tokenizers[-1]
    read = one.encode(prefix + text)
    written = translate_texts(build_translator(run), [prefix + text])[0] if output is None else into.encode(output)
    check_fits(run.model, read, written)
    batch = collate([read], [written], [0]).to(run.device_context.device)
    source = source_of(one, read, batch.source, batch.source_valid)
    # The last word of a prefix without a space at its end is one with the first word of the text.
    prefix_words = len(source.words) - len(words_of(one, [*one.encode(text), EOS]))
    source = replace(source, prefix_words=max(0, prefix_words))
    return Pair(source, written, (prefix + text, into.decode(written)), into.tokens([*written, EOS]), remark=remark)


def class_symptoms(
    truth: Int[np.ndarray, " examples"],
    probabilities: Float[np.ndarray, "examples classes"],
    names: Sequence[str],
    noun: str,
    places: Sequence[str],
    described: Callable[[int], str],
) -> Diagnostics:
    """Return signs in predictions, and the examples whose true class has the lowest probability.

    Args:
        truth: True class of each example.
        names: Names of the classes.
        noun: Plural noun for the examples.
        places: Place of each example in its split, as text.
        described: Returns an example, by its row in `truth`, as one line of text.
    """
    right, worst = measures.accuracy(truth, probabilities.argmax(axis=1)), []
    for row in np.argsort(probabilities[np.arange(len(truth)), truth], kind="stable")[:WORST].tolist():
        said, wanted = int(probabilities[row].argmax()), int(truth[row])
        given = f"{places[row]}, {names[wanted]} has a probability of {probabilities[row, wanted]:.3g}"
        output = f"{names[said]} ({probabilities[row, said]:.3f})"
        worst.append(WorstExample(described(row), output, names[wanted], given))
    summary = f"{len(truth):,} {noun}: accuracy {right.value:.2f} % ({right.low:.2f} to {right.high:.2f})"
    return Diagnostics(summary, signs.class_signs(truth, probabilities, names), worst)
