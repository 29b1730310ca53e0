"""Python interface of a trained model (`s2s.load`): one method per use."""

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import overload

import numpy as np
import torch

from s2s.arguments import (
    check_integer,
    check_number,
    check_path,
    check_paths,
    check_references,
    check_text,
    check_texts,
    reword_methods,
)
from s2s.data.batches import collate_sources
from s2s.data.dataset import to_device
from s2s.data.pairs import with_prefix
from s2s.data.sentences import SplitLine, sentence_splitter, unsplit
from s2s.decoding.beam_search import Hypothesis
from s2s.decoding.generate import MAX_SOURCE_LENGTH, Candidate
from s2s.errors import UserError, counted, quote_path
from s2s.evaluation.metrics import check_metrics
from s2s.evaluation.tokenization import check_choice
from s2s.inspection.inspection import AttentionMaps, InspectionRequest, check_request
from s2s.inspection.page import InspectionPage
from s2s.inspection.words import Link, check_length, links, words_of
from s2s.models.base import Classifier, EncoderOutput, Seq2Seq
from s2s.models.ensemble import Ensemble
from s2s.models.language_model import LanguageModel
from s2s.models.masked_lm import MaskedLM
from s2s.recipe.labelled import LabelledRecipe
from s2s.recipe.pairs import PairRecipe
from s2s.recipe.schema import BleuTokenizer, TrainRecipe
from s2s.run.folder import RunConfig
from s2s.run.inference import evaluation_split, inspect_loaded, load, pairs_to_score, train_overlap
from s2s.run.tasks import classification_task, schema_of, task_of
from s2s.tasks.base import TEXTS, TOKENIZER, Evaluation, EvaluationOptions, LoadedModel
from s2s.tasks.captioning.figures import caption_files
from s2s.tasks.captioning.recipe import CaptionRecipe
from s2s.tasks.classification_base import class_probabilities, truncation_warning
from s2s.tasks.coverage import VocabularyCoverage, count_sentences, describe_unknown
from s2s.tasks.language_model.generation import PromptWarnings, Sampling, Writing, generate_texts
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.line_translation import TooLong
from s2s.tasks.masked_lm.filling import Filled, WordChoice, fill, fill_warnings, weigh_words
from s2s.tasks.masked_lm.recipe import MaskedRecipe
from s2s.tasks.protocols import Inspectable
from s2s.tasks.seq2seq import build_translator, check_fits
from s2s.tasks.source_use import token_scores
from s2s.tasks.text_to_text.answers import best_first, check_chosen, log_probabilities, task_named
from s2s.tasks.text_to_text.recipe import TextToTextRecipe
from s2s.tasks.translation.diagnosis import after_prefix, attention_between
from s2s.tasks.translation.recipe import Recipe
from s2s.training.progress import no_progress_bar

WRITES = ("translation", "text-to-text")
"""Tasks that generate a text from a text."""
WRITTEN = (*WRITES, "captioning")
"""Tasks whose generated texts are scored by BLEU."""
LABELS = ("classification", "images")
"""Tasks that predict classes."""
# Warnings point to the caller, which is behind the method and its decorator.
_CALLER = 3


@reword_methods
class Run:
    """A trained model, ready for inference; `s2s.load` returns one.

    Args:
        run: The opened run with overrides.
        checkpoint: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.

    Attributes:
        loaded: The model with its recipe, tokenizers and device.

    Raises:
        UserError: The checkpoint does not exist, or a file is damaged.

    Example:
        >>> import s2s
        >>> s2s.load("runs/translate").translate("A dog runs.")  # doctest: +SKIP
        'Ein Hund läuft.'
    """

    def __init__(self, run: RunConfig, checkpoint: str | None = None) -> None:
        self._opened = run
        self.loaded = load(run, checkpoint)

    def __repr__(self) -> str:
        return f"<run {self.loaded.path}, task {self.task}, checkpoint {self.loaded.checkpoint.name}>"

    @property
    def task(self) -> str:
        """Task of the run, such as `translation`."""
        return self.loaded.recipe.task

    @property
    def recipe(self) -> TrainRecipe:
        """Recipe of the run, with overrides."""
        return self.loaded.recipe

    @overload
    def translate(  # pyright: ignore[reportOverlappingOverload]
        self, lines: str, task: str | None = None, split_sentences: bool = False
    ) -> str: ...

    @overload
    def translate(self, lines: Sequence[str], task: str | None = None, split_sentences: bool = False) -> list[str]: ...

    def translate(
        self, lines: str | Sequence[str], task: str | None = None, split_sentences: bool = False
    ) -> str | list[str]:
        """Translate lines with beam search, as `s2s translate` does.

        Args:
            lines: Lines, or one line.
            task: Task of a text-to-text run; required if the run has several.
            split_sentences: Translate the sentences of each line one by one, and join them with its white space.

        Returns:
            The best translation of each line, empty for an empty line; of one line, its translation.

        Raises:
            UserError: The run does not generate text from text, a line is too long, or the task does not exist; for
                `split_sentences` see the method `split_sentences`.

        Warns:
            UserWarning: Lines are longer than any training text, or have words that it lacks. `candidates` does not
                warn; use `longer_than_training` and `unknown_words`. `Candidate.hypothesis.cut` is True if the length
                limit ended an output.
        """
        if isinstance(lines, str):
            return self.translate([lines], task, split_sentences)[0]
        lines = check_texts(lines, "lines")
        parts = self.split_sentences(lines) if split_sentences else list(map(unsplit, lines))
        sentences = [sentence for part in parts for sentence in part.sentences]
        found = iter(self.candidates(sentences, task=task))
        for number, unknown in enumerate(self.unknown_words(lines, task), start=1):
            if unknown:
                warnings.warn(f"line {number}: {describe_unknown(unknown)}", stacklevel=_CALLER)
        longest, most = self._longest
        too_long = TooLong(longest, warnings.warn, at_once=False, sentences=most)
        lengths, prefix = iter(self._lengths(sentences, task)), self._asked(task)[0]
        for part in parts:
            counts = [count_sentences(with_prefix(prefix, sentence)) for sentence in part.sentences]
            too_long.add(max(itertools.islice(lengths, len(counts)), default=0), max(counts, default=0))
        too_long.report()
        texts = (each[0].text if each else "" for each in found)
        return [part.join(list(itertools.islice(texts, len(part.sentences)))) for part in parts]

    def split_sentences(self, lines: Sequence[str]) -> list[SplitLine]:
        """Split lines into sentences by the rules of the source language.

        Returns:
            The sentences of each line, and the white space between them.

        Raises:
            UserError: The run is not one of translation, or the package sentencex is not installed.
        """
        self._only("split sentences", ("translation",))
        split = sentence_splitter(self.loaded.narrow(Recipe, Seq2Seq).recipe.data.source)
        return [split(line) for line in check_texts(lines, "lines")]

    def longer_than_training(self, lines: Sequence[str], task: str | None = None) -> list[bool]:
        """Check which lines have more tokens or more sentences than any training text.

        Args:
            task: See `translate`.

        Returns:
            A boolean per line; False if the training lengths are unknown.
        """
        (longest, sentences), lines, (prefix, _) = self._longest, check_texts(lines, "lines"), self._asked(task)
        return [
            (longest is not None and tokens > longest)
            or (sentences is not None and tokens > 0 and count_sentences(with_prefix(prefix, line)) > sentences)
            for line, tokens in zip(lines, self._lengths(lines, task), strict=True)
        ]

    def unknown_words(self, lines: Sequence[str], task: str | None = None) -> list[tuple[str, ...]]:
        """Find words that never occur in the training text, so that a translation may be nonsense.

        Args:
            task: See `translate`.

        Returns:
            For each line, its unknown words, or words with unknown tokens if the words are usual. Empty for a line with
            no larger share of unknown words than 99 % of the validation set, and if the training words were not saved.
        """
        seen, lines = self._coverage, check_texts(lines, "lines")
        # The prefix is part of the training and validation texts.
        prefix = self._asked(task)[0] if seen else ""
        return [seen.unknown(with_prefix(prefix, line), self.loaded.tokenizers[0]) if seen else () for line in lines]

    @cached_property
    def _coverage(self) -> VocabularyCoverage | None:
        return VocabularyCoverage.load(self.loaded.checkpoint / TOKENIZER)

    @property
    def _longest(self) -> tuple[int | None, int | None]:
        """Maximum number of tokens and of sentences of a training text; None if unknown."""
        seen = self._coverage
        return (seen.longest, seen.sentences) if seen else (None, None)

    def _lengths(self, lines: Sequence[str], task: str | None) -> list[int]:
        """Return the number of tokens of each line with its prefix; 0 for an empty line."""
        prefix, _ = self._asked(task)
        rows = self.loaded.tokenizers[0].encode_batch([prefix + line if line.strip() else "" for line in lines])
        return [len(row) if line.strip() else 0 for row, line in zip(rows, lines, strict=True)]

    def candidates(
        self,
        lines: Sequence[str],
        nbest: int = 1,
        beam: int | None = None,
        task: str | None = None,
        before_step: Callable[[], None] | None = None,
        prefixes: Sequence[str] | None = None,
    ) -> list[tuple[Candidate, ...]]:
        """Generate n-best lists with scores, or samples if the recipe has `decoding.sample`.

        Args:
            nbest: Candidates per line, at most the beam size.
            beam: Beam size of a search, also where the recipe samples; None: as the recipe says.
            task: See `translate`. If a task has a list of answers, they are the candidates, their scores are log
                probabilities, and there is no beam.
            before_step: Called before each decoder step, possibly from several threads. An exception that it raises
                ends the computation and is raised here.
            prefixes: Text with which the translation of each line begins; None for none.

        Returns:
            The candidates of each line, best first; none for an empty line.

        Raises:
            UserError: See `translate`; or `nbest` exceeds the beam size or the number of answers.
        """
        for name, value in (("nbest", nbest), ("beam", 1 if beam is None else beam)):
            check_integer(name, value)
        prefix, answers = self._asked(task)
        filled = [prefix + line if line.strip() else "" for line in check_texts(lines, "lines")]
        if answers is not None:
            ignored = [f"beam {beam}"] if beam is not None else ["prefixes"] if prefixes is not None else []
            check_chosen(answers, nbest, ignored)
            return self._chosen(filled, answers, nbest, before_step)
        run = self._writer
        if beam is not None:
            decoding = run.recipe.decoding.model_copy(update={"beam": beam, "sample": False})
            run = replace(run, recipe=run.recipe.model_copy(update={"decoding": decoding}))
        forced = None if prefixes is None else check_texts(prefixes, "prefixes")
        if forced is not None and len(forced) != len(filled):
            raise UserError(f"{len(filled)} lines and {len(forced)} prefixes", remedy="give a prefix for each line")
        translator = build_translator(run, nbest, before_step)
        return [found.candidates for found in translator.translate_chunk(filled, prefixes=forced)]

    def count_tokens(self, lines: Sequence[str], task: str | None = None) -> list[int]:
        """Count the tokens of each line, including the task's prefix.

        Args:
            lines: Source lines, or texts to classify.
            task: See `translate`.

        Returns:
            The number of tokens of each line.

        Raises:
            UserError: The run reads no text, or the task does not exist.
        """
        if not self.loaded.tokenizers:
            self._only("count tokens", (*WRITES, "classification"))
        prefix = self._asked(task)[0] if self.task in WRITES else ""
        filled = [prefix + line if line.strip() else "" for line in check_texts(lines, "lines")]
        return [len(tokens) for tokens in self.loaded.tokenizers[0].encode_batch(filled)]

    @property
    def max_source_tokens(self) -> int | None:
        """Maximum number of source tokens of a text-generating model; None: no limit."""
        longest = self._writer.model.encoder.max_positions if self.task in WRITES else None
        return None if longest is None else longest - 1

    @property
    def _writer(self) -> LoadedModel[PairRecipe, Seq2Seq]:
        return self.loaded.narrow(PairRecipe, Seq2Seq)

    def _asked(self, task: str | None) -> tuple[str, tuple[str, ...] | None]:
        """Return the prefix of each line, and the fixed answers (None: free text)."""
        self._only("translate", WRITES)
        if task is not None:
            check_text(task, "task")
        if isinstance(self.recipe, TextToTextRecipe):
            named = task_named(self.recipe, task)
            return named.prefix, named.answers
        if task is not None:
            raise UserError("does not apply to runs of translation", where=f"task {task!r}", remedy="leave it out")
        return self.loaded.narrow(Recipe, Seq2Seq).recipe.data.prefix, None

    def _chosen(
        self, lines: list[str], answers: tuple[str, ...], nbest: int, before_step: Callable[[], None] | None
    ) -> list[tuple[Candidate, ...]]:
        run, cut = self._writer, self.loaded.tokenizers[0]
        sources, batch = [line for line in lines if line], run.recipe.decoding.batch
        found = log_probabilities(run.model, cut, sources, answers, batch, before_step=before_step)
        rows = iter(found.tolist())
        tokens = dict(zip(answers, map(tuple, cut.encode_batch(answers)), strict=True))

        def best(row: list[float]) -> tuple[Candidate, ...]:
            """Return the most probable answers of a line."""
            order = best_first(row, answers)[:nbest]
            return tuple(Candidate(text, nats, Hypothesis(tokens[text], nats, nats, False)) for nats, text in order)

        return [best(next(rows)) if line else () for line in lines]

    def score(self, sources: Sequence[str], targets: Sequence[str], task: str | None = None) -> list[float]:
        """Compute the log probability of each target given its source, including the end.

        Args:
            targets: One target per source.
            task: See `translate`.

        Returns:
            Log probabilities in nats.

        Raises:
            UserError: See `translate`; or the numbers of sources and targets differ.
        """
        return [math.fsum(each) for each in self.token_scores(sources, targets, task)]

    def token_scores(
        self, sources: Sequence[str], targets: Sequence[str], task: str | None = None
    ) -> list[list[float]]:
        """Compute the log probabilities of the tokens of each target given its source, in nats; the end is the last.

        The arguments and errors are those of `score`.
        """
        prefix, _ = self._asked(task)
        sources, targets = check_texts(sources, "sources"), check_texts(targets, "targets")
        if len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} sources and {len(targets)} targets", remedy="give a target for each source"
            )
        run, found = self._writer, [list[float]()] * len(sources)
        read = run.tokenizers[0].encode_batch([prefix + source for source in sources])
        wanted = run.tokenizers[-1].encode_batch(list(targets))
        for tokens in zip(read, wanted, strict=True):
            check_fits(run.model, *tokens)
        order = sorted(range(len(read)), key=lambda row: len(read[row]))
        for first in range(0, len(order), run.recipe.decoding.batch):
            rows = order[first : first + run.recipe.decoding.batch]
            source, valid = collate_sources([read[row] for row in rows])
            where = run.device_context.device
            with torch.inference_mode():
                scores = token_scores(
                    run.model, to_device(source, where), to_device(valid, where), [wanted[row] for row in rows]
                )
            for row, nats in zip(rows, scores.tolist(), strict=True):
                found[row] = nats[: len(wanted[row]) + 1]
        return found

    def encode(self, lines: Sequence[str], task: str | None = None) -> EncoderOutput:
        """Compute the hidden states of the encoder, without gradients, on the device of the run.

        Args:
            lines: Texts or paths of images. All are one batch, so give as many as fit into memory.
            task: See `translate`.

        Returns:
            `states`, the output of the last layer, `(batch, source, width)`; `valid`, the padding mask, `(batch,
            source)`, True for real positions; and `summary`, one vector for each line, `(batch, width)`. The positions
            are those of the tokens with the task's prefix, and of special tokens: `</s>` at the end and, where training
            puts it, `<s>` at the beginning.

        Raises:
            UserError: The run has no encoder or is an ensemble, a line is too long, or an image cannot be read.

        Example:
            >>> import s2s
            >>> found = s2s.load("runs/translate").encode(["A dog runs."])  # doctest: +SKIP
            >>> found.states[found.valid].mean(dim=0)  # doctest: +SKIP
        """
        if not (lines := check_texts(lines, "lines")):
            raise UserError("has no text", where="lines", remedy="give one or more")
        if isinstance(self.loaded.model, Ensemble):
            raise self._no_ensemble("states")
        if self.task in LABELS:
            labelled = self.loaded.narrow(LabelledRecipe, Classifier)
            batch = classification_task(labelled.recipe).parse_inputs(labelled, lines).collate(np.arange(len(lines)), 0)
            encoder, source, valid = labelled.model.encoder, batch.source, batch.source_valid
        else:
            self._only("encode texts", (*WRITES, "masked-lm"))
            prefix, begin = "", False
            if self.task == "masked-lm":
                masked = self.loaded.narrow(MaskedRecipe, MaskedLM)
                encoder, begin = masked.model.encoder, masked.recipe.masking.begin
            else:
                encoder, (prefix, _) = self._writer.model.encoder, self._asked(task)
            rows = self.loaded.tokenizers[0].encode_batch([prefix + line for line in lines])
            source, valid = collate_sources(rows, begin)
            check_length(source.shape[1], encoder.max_positions or MAX_SOURCE_LENGTH)
        device = self.loaded.device_context.device
        # Tensors of the inference mode could not be the input of a probe that is trained.
        with torch.no_grad():
            return encoder(to_device(source, device), to_device(valid, device))

    def attention(self, line: str, target: str | None = None, task: str | None = None) -> AttentionMaps:
        """Return the attention weights for a line.

        A text-generating model is run on the line and a target; other models only encode the line.

        Args:
            target: Target to force; None: the model's own translation.
            task: See `translate`.

        Raises:
            UserError: The model has no attention, or the line is empty or too long.
        """
        line = self._text_or_image(line, "line")
        if self.task not in WRITES:
            for name, value in (("target", target), ("task", task)):
                if value is not None:
                    raise UserError(f"does not apply to a run of task {self.task}", name, "leave it out")
            inspector = task_of(self.recipe)
            found = (
                inspector.inspect(self.loaded, InspectionRequest((line,))).examples[0].attention
                if isinstance(inspector, Inspectable)
                else []
            )
            if not found:
                raise self._without_attention()
            return found[-1]
        if target is None:
            (best, *_) = self.candidates([line], task=task)[0] or (None,)
            tokens = best.hypothesis.tokens if best else ()
        else:
            tokens = self.loaded.tokenizers[-1].encode(check_text(target, "target"))
        maps = self.looks(line, tokens, task)
        if not len(maps.weights):
            raise self._without_attention()
        return maps

    def looks(self, line: str, tokens: Sequence[int], task: str | None = None) -> AttentionMaps:
        """Return the attention weights for a target given by its tokens.

        Args:
            tokens: Token ids of the target.
            task: See `translate`.

        Returns:
            The attention maps; without layers if the model has no attention.

        Raises:
            UserError: A token id is not in the vocabulary, or source or target exceed the model's positions.
        """
        for place, token in enumerate(tokens):
            check_integer(f"tokens[{place}]", token)
            check_number(f"tokens[{place}]", token, 0, self.loaded.tokenizers[-1].size - 1)
        read = self._read(line, task)
        check_fits(self._writer.model, read, tokens)
        return attention_between(self._writer, read, list(tokens))

    def inspect(
        self,
        *texts: str,
        translation: str | None = None,
        layer: int = -1,
        head: int = 0,
        word: str | None = None,
        task: str | None = None,
    ) -> InspectionPage:
        """Inspect attention, queries, keys, values and saliency, as `s2s inspect` does.

        Args:
            texts: One text, or two with a word in common; none: an example of the test set.
            translation: Translation to inspect; None: the model's own.
            layer: Layer, from 0; -1: the last.
            head: Head whose queries, keys and values are shown, from 0.
            word: Word whose vectors are shown; None: the longest or most ambiguous one.
            task: See `translate`.

        Returns:
            The inspection, which a notebook shows as a page.

        Raises:
            UserError: The text does not fit the model, the layer, head or word does not exist, an argument does not
                apply to the run or the number of texts, or the run is an ensemble.
        """
        inputs = tuple(self._text_or_image(text, f"texts[{place}]") for place, text in enumerate(texts))
        for name, text in (("translation", translation), ("word", word), ("task", task)):
            if text is not None:
                check_text(text, name)
        for name, value, least in (("layer", layer, -1), ("head", head, 0)):
            check_integer(name, value)
            check_number(name, value, least, 1_000_000)
        request = InspectionRequest(inputs, output=translation, layer=layer, head=head, word=word, task=task)
        check_request(request, self.task)
        if isinstance(self.loaded.model, Ensemble):
            raise self._no_ensemble("vectors")
        return InspectionPage(inspect_loaded(self.loaded, self._opened, request))

    def alignment(
        self, line: str, tokens: Sequence[int], task: str | None = None
    ) -> tuple[list[str], list[str], list[Link]]:
        """Align a line with a target by attention, as `s2s inspect --align` does.

        Args:
            tokens: Token ids of the target.
            task: See `translate`.

        Returns:
            The source words, the target words, and links between them as pairs of positions from 0.

        Raises:
            UserError: See `attention`.
        """
        read, (source, *_, into) = self._read(line, task), (*self.loaded.tokenizers, self.loaded.tokenizers[-1])
        maps = self.looks(line, tokens, task)
        if not len(maps.weights):
            raise self._without_attention()
        looked = maps.weights[-1].mean(axis=0)
        words = after_prefix(source, words_of(source, read, True), line), words_of(into, list(tokens), True)
        return [word.text for word in words[0]], [word.text for word in words[1]], links(looked, *words)

    def _read(self, line: str, task: str | None) -> list[int]:
        prefix, _ = self._asked(task)
        if not check_text(line, "line").strip():
            raise UserError("the line is empty", remedy="give a line with at least one word")
        return self.loaded.tokenizers[0].encode(prefix + line)

    def _text_or_image(self, value: object, name: str) -> str:
        """Return an input of the task: a text, or the path of an image."""
        return str(check_path(name, value)) if self.task in ("images", "captioning") else check_text(value, name)

    def _without_attention(self) -> UserError:
        if isinstance(self.loaded.model, Ensemble):
            return self._no_ensemble("attention")
        what = f"a model of kind {self.recipe.model.kind} has no attention"
        return UserError(what, where=str(self.loaded.path), remedy="name another run")

    def _no_ensemble(self, what: str) -> UserError:
        return UserError(f"an ensemble has no {what} of its own", str(self.loaded.path), "name one of its runs")

    @overload
    def classify(self, lines: str) -> str: ...  # pyright: ignore[reportOverlappingOverload]

    @overload
    def classify(self, lines: Sequence[str]) -> list[str]: ...

    def classify(self, lines: str | Sequence[str]) -> str | list[str]:
        """Classify lines, as `s2s classify` does.

        Args:
            lines: Texts or paths of images, or one of them.

        Returns:
            The most probable class of each line, empty for an empty line; of one line, its class.

        Raises:
            UserError: The run is not a classifier, or an image cannot be read.
        """
        if isinstance(lines, str):
            return self.classify([lines])[0]
        return [max(found, key=found.__getitem__) if found else "" for found in self.probabilities(lines)]

    def probabilities(self, lines: Sequence[str]) -> list[dict[str, float]]:
        """Compute class probabilities; see `classify`.

        Args:
            lines: Texts, or paths of images.

        Returns:
            The probability of each class for each line; an empty dictionary for an empty line.

        Warns:
            UserWarning: Texts were truncated at `batches.max_length`.
        """
        found, truncated = self.probabilities_and_truncation(lines)
        if any(truncated):
            texts, limit = sum(map(bool, found)), self.recipe.batches.model_dump()["max_length"]
            warnings.warn(truncation_warning(sum(truncated), texts, limit), stacklevel=_CALLER)
        return found

    def probabilities_and_truncation(self, lines: Sequence[str]) -> tuple[list[dict[str, float]], list[bool]]:
        """Compute class probabilities without a warning about truncation.

        Args:
            lines: Texts, or paths of images.

        Returns:
            The result of `probabilities`, and a boolean per line: the text was truncated at `batches.max_length`.
        """
        self._only("classify", LABELS)
        run = self.loaded.narrow(LabelledRecipe, Classifier)
        classes = run.recipe.data.classes or ()
        lines = check_texts(lines, "lines")
        filled = [line for line in lines if line.strip()]
        if not filled:
            return [{} for _ in lines], [False for _ in lines]
        examples = classification_task(run.recipe).parse_inputs(run, filled)
        rows = iter(class_probabilities(run.model, examples).tolist())
        cut = iter(examples.is_truncated.tolist())
        found = [dict(zip(classes, next(rows), strict=True)) if line.strip() else {} for line in lines]
        return found, [bool(line.strip()) and next(cut) for line in lines]

    def caption(self, images: Sequence[str | Path]) -> list[str]:
        """Caption images, as `s2s caption` does.

        Args:
            images: Paths of images.

        Returns:
            The caption of each image.

        Raises:
            UserError: The run is not one of captioning, or an image cannot be read.

        Warns:
            UserWarning: The length limit ended captions.

        Example:
            >>> import s2s
            >>> s2s.load("runs/captioning").caption(["photo.png"])  # doctest: +SKIP
        """
        self._only("caption", ("captioning",))

        def refuse(row: int, error: UserError) -> None:
            """Raise the error."""
            raise error

        paths, run = check_paths(images, "images"), self.loaded.narrow(CaptionRecipe, Seq2Seq)
        found = caption_files(run, paths, False, refuse)
        if found.length_limited:
            warnings.warn(str(found.length_limited), stacklevel=_CALLER)
        return found.captions

    def generate(
        self,
        prompt: str = "",
        max_tokens: int = 200,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        count: int = 1,
        seed: int = 1,
    ) -> list[str]:
        """Continue a text with a language model, as `s2s generate` does; the same seed gives the same texts.

        Args:
            prompt: Beginning of the text; empty: the beginning of a document.
            max_tokens: Maximum number of new tokens.
            temperature: Sampling temperature; 0 is greedy search.
            top_k: Sample from this number of most probable tokens; None for all.
            top_p: Sample from the most probable tokens with this total probability (nucleus sampling).
            count: Number of texts.
            seed: Seed of the sampling.

        Returns:
            The texts, which begin with the prompt.

        Raises:
            UserError: The run is not a language model, an argument is out of bounds, or the prompt is too long.

        Warns:
            UserWarning: The prompt is longer than training texts, or the tokenizer does not know all characters.

        Example:
            >>> import s2s
            >>> s2s.load("runs/language").generate("The dog", max_tokens=20)  # doctest: +SKIP
        """
        self._only("generate text from a prompt", ("language-model",))
        check_text(prompt, "prompt")
        check_number("temperature", temperature, 0, 100)
        check_number("top_p", top_p, 0, 1, above=True)
        for name, value, least, most in (
            ("top_k", 1 if top_k is None else top_k, 1, 2**32 - 1),
            ("max_tokens", max_tokens, 1, 1_000_000),
            ("count", count, 1, 10_000),
            ("seed", seed, 0, 2**32 - 1),
        ):
            check_integer(name, value)
            check_number(name, value, least, most)
        run, found = self.loaded.narrow(LanguageRecipe, LanguageModel), list[str]()
        PromptWarnings(run, True, found.append).add(prompt)
        for warning in found:
            warnings.warn(warning, stacklevel=_CALLER)
        return generate_texts(run, prompt, Writing(Sampling(temperature, top_k, top_p), max_tokens, count, seed))

    def fill(self, text: str, tokens: int = 1, best: int = 10) -> Filled:
        """Fill the blank of a text with a masked-language model, as `s2s fill` does.

        Args:
            text: Text with one blank `___`.
            tokens: Number of tokens in the blank, 1 to 8.
            best: Number of fillers.

        Returns:
            The most probable fillers with their probabilities.

        Raises:
            UserError: The run is not a masked-language model, or the text does not have one blank.

        Warns:
            UserWarning: The text is longer than training texts, or the tokenizer does not know all words.

        Example:
            >>> import s2s
            >>> print(s2s.load("runs/masked").fill("A ___ sleeps.", best=5))  # doctest: +SKIP
        """
        for name, value, most in (("tokens", tokens, 8), ("best", best, 1_000)):
            check_integer(name, value)
            check_number(name, value, 1, most)
        run = self._blank_filler(text)
        return fill(run.model, run.tokenizers[0], text, run.recipe.masking.begin, tokens, best)

    def weigh_words(self, text: str, words: Sequence[str]) -> WordChoice:
        """Compare the probabilities of words in a blank, as `s2s fill --words` does.

        Args:
            text: Text with one blank `___`.
            words: Two or more words with equal numbers of tokens.

        Returns:
            The log probability of each word, in nats.

        Raises:
            UserError: See `fill`; or a word is unknown, or the numbers of tokens differ.

        Warns:
            UserWarning: See `fill`.
        """
        words = check_texts(words, "words")
        if len(words) < 2:
            raise UserError(f"has {counted(len(words), 'word')}", where="words", remedy="give two or more")
        run = self._blank_filler(text)
        return weigh_words(run.model, run.tokenizers[0], text, words, run.recipe.masking.begin)

    def _blank_filler(self, text: str) -> LoadedModel[MaskedRecipe, MaskedLM]:
        self._only("fill a blank", ("masked-lm",))
        (text,) = check_texts([text], "text")
        run = self.loaded.narrow(MaskedRecipe, MaskedLM)
        for warning in fill_warnings(text, run.tokenizers[0], run.recipe.batches.max_length):
            warnings.warn(warning, stacklevel=_CALLER + 1)
        return run

    def evaluate(
        self,
        split: str = "test",
        sources: Sequence[str] | None = None,
        references: Sequence[str] | Sequence[Sequence[str]] | None = None,
        tokenizer: BleuTokenizer | None = None,
        metrics: Sequence[str] = (),
    ) -> Evaluation:
        """Score the run as `s2s evaluate` does; nothing is written into the run's folder.

        Args:
            split: `test` or `validation`.
            sources: Texts to translate and score instead of a split, with `references`.
            references: One reference per source, or several, which are scored together.
            tokenizer: sacreBLEU tokenizer for BLEU and TER; None: the recipe's.
            metrics: Metrics of translations, see `s2s.score`.

        Raises:
            UserError: The recipe has no such split, the held-out examples would differ from those of the training, or
                sources and references do not match.
        """
        if tokenizer is not None:
            check_choice(tokenizer)
            self._only("be scored with a tokenizer", WRITTEN)
        if metrics := check_texts(metrics, "metrics"):
            check_metrics(metrics, "metrics")
            self._only("be scored by chosen metrics", ("translation",))
        if sources is None and references is None:
            part = evaluation_split(self._opened, self.recipe, split)
            scoring = EvaluationOptions(split, tokenizer=tokenizer, metrics=metrics)
            evaluation = task_of(self.recipe).evaluate(self.loaded, part, scoring, no_progress_bar)
            return replace(evaluation, train_overlap=train_overlap(self._opened, self.recipe, split, part))
        self._only("score sources", ("translation",))
        if sources is None or references is None:
            raise UserError("sources and references go together", remedy="give both, or neither for a split")
        read = check_texts(sources, "sources")
        wanted = check_references(references)
        if not read or len(read) != len(wanted) or not all(wanted):
            raise UserError(
                f"{len(read)} sources and {len(wanted)} references", remedy="give one reference or more for each source"
            )
        scoring = EvaluationOptions(TEXTS, tokenizer=tokenizer, metrics=metrics)
        return task_of(self.recipe).evaluate(self.loaded, pairs_to_score(read, wanted), scoring, no_progress_bar)

    def _only(self, what: str, tasks: tuple[str, ...]) -> None:
        if self.task not in tasks:
            use = f"s2s {schema_of(self.recipe).command} {quote_path(self.loaded.path)}"
            raise UserError(
                f"a run of task {self.task} cannot {what}",
                where=str(self.loaded.path),
                remedy=f"name a run of {' or '.join(tasks)}; this one is for `{use}`",
            )
