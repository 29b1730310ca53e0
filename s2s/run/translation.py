"""A run of translation: from a recipe to a trained and tested model."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from s2s.data.batches import collate
from s2s.data.corpora import pairs
from s2s.data.inspection import unreachable
from s2s.data.pairs import Pairs
from s2s.data.seen import seen_in
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.translator import Translator, collapse
from s2s.errors import UserError
from s2s.evaluation.metrics import LOWER_IS_BETTER, score
from s2s.models.contract import Seq2Seq
from s2s.recipe.schema import Recipe
from s2s.run.course import Course, Say
from s2s.run.evaluation import digest_of_pairs, evaluate_run
from s2s.run.folder import TOKENIZER, flat, sides
from s2s.run.held_out import held_out_hashes
from s2s.run.loading import build_model, load_tokenizers
from s2s.run.preparing import Prepared, prepare
from s2s.run.pretrained import Beginning, begin_with, open_source
from s2s.training.devices import choose
from s2s.training.logger import RunLog, Sample
from s2s.training.pictures import attention_picture
from s2s.training.trainer import Trainer
from s2s.training.translation import mean_loss, translation_loss

_SAMPLES = 5
_DRAWN_PIECES = 40
# validation sources that tell how much is new in any text
_COMPARED = 2000


def course(
    recipe: Recipe,
    say: Say,
    folder: Path | None = None,
    overrides: Sequence[str] = (),
    prepared: Prepared | None = None,
) -> "Translating":
    """A run that has done nothing yet.

    Args:
        recipe: the resolved recipe.
        say: prints a line.
        folder: of the run that goes on; None: a new one.
        overrides: `section.key=value`, for `data` and `device`.
        prepared: the recipe's corpus, where it was loaded and encoded before; None: that is done now.

    Raises:
        UserError: data, tokenizers and model do not fit together.
    """
    if folder is None:
        check_tying(recipe)
    computer = choose(recipe.device)
    say(f"{recipe.name} on {computer}")
    source = None if folder else open_source(recipe)
    recipe = source.adapt(recipe) if source else recipe
    known = load_tokenizers(folder / TOKENIZER, recipe.tokenizer) if folder else None
    if source:
        known = (source.tokenizer, source.tokenizer if recipe.tokenizer.shared else None)
    prepared = prepared or prepare(recipe, known, say)
    model = build_model(recipe, prepared.source_tokenizer.size, prepared.target_tokenizer.size)
    beginning = begin_with(model, recipe, source, folder)
    model = model.to(computer.device)
    _check_lengths(recipe, model, prepared)
    pairs = Pairs(prepared.train, recipe.batches, recipe.training.tokens_per_update)
    loss = translation_loss(recipe.training.label_smoothing)
    trainer = Trainer(model, pairs, loss, recipe.training, recipe.seeds, computer, beginning.scales)
    return Translating(recipe, trainer, prepared, beginning, overrides)


def check_tying(recipe: Recipe) -> None:
    """Refuses one table of vectors for two vocabularies, in which the same number means two pieces.

    Raises:
        UserError: it is asked for.
    """
    if not recipe.tokenizer.shared and getattr(recipe.model, "tie", None) == "all":
        raise UserError(
            "is all, but source and target have vocabularies of their own (tokenizer.shared: false): the vector of a "
            "source piece would be that of a target piece with the same number",
            where="model.tie",
            remedy="set model.tie: target, or leave it out",
        )


def _check_lengths(recipe: Recipe, model: Seq2Seq, prepared: Prepared) -> None:
    """Before anything is made: positions that were not learned would stop the run at its first validation."""
    for part, lengths in (
        (model.encoder, prepared.validation.source_lengths),
        (model.decoder, prepared.validation.target_lengths),
    ):
        longest = max(int(lengths.max()), recipe.batches.max_length)
        if part.longest is not None and part.longest < longest:
            raise UserError(
                f"the model knows {part.longest} positions, but batches.max_length is "
                f"{recipe.batches.max_length}, and the longest validation sentence has {lengths.max()} pieces",
                where="model.max_positions",
                remedy=f"set model.max_positions={longest} or higher",
            )
    if not model.decoder.one_to_one:
        return
    for name, part in (("train", prepared.train), ("validation", prepared.validation)):
        unequal = np.flatnonzero(part.source_lengths != part.target_lengths)
        if len(unequal):
            sizes = part.source_lengths[unequal[0]] - 1, part.target_lengths[unequal[0]] - 1
            raise UserError(
                f"a model of kind {recipe.model.kind} writes one piece for each that it reads, but "
                f"{len(unequal):,} pairs of {name} differ in length, the first with {sizes[0]} and {sizes[1]}",
                where="model.kind",
                remedy="give a corpus of equally many words a side, with tokenizer.kind: word and "
                "tokenizer.shared: false, or take another model",
            )


class Translating(Course):
    """What a run of translation has of its own.

    Args:
        recipe: the resolved recipe.
        trainer: that has done nothing yet.
        prepared: the corpus.
        beginning: what the model has from another run.
        overrides: of the command line, for the test.
    """

    perplexity: ClassVar[bool] = True

    def __init__(
        self,
        recipe: Recipe,
        trainer: Trainer,
        prepared: Prepared,
        beginning: Beginning,
        overrides: Sequence[str],
    ) -> None:
        super().__init__(recipe, trainer, beginning)
        self.prepared = prepared
        self.overrides = overrides

    def tokenizers(self) -> dict[str, Tokenizer]:
        """One of both sides, or one of each."""
        both = self.prepared.source_tokenizer, self.prepared.target_tokenizer
        return dict(zip(sides(self.recipe.tokenizer), both, strict=False))

    def hashes(self) -> dict[str, str]:
        """Of the training pairs as pieces, of the tokenizers, and of what is held out."""
        corpus = self.prepared.corpus
        parts = {"validation": corpus.validation, "test": corpus.test}
        return self.prepared.hashes() | held_out_hashes(self.recipe.data, parts, digest_of_pairs)

    def choices(self) -> int:
        """Pieces of the target."""
        return self.prepared.target_tokenizer.size

    def counts(self) -> dict[str, int]:
        """Pairs by split, and those that are too long."""
        test = self.prepared.corpus.test
        return {
            "train": len(self.prepared.train),
            "too_long": self.trainer.examples.left_out,
            "validation": len(self.prepared.validation),
            "test": len(test) if test is not None else 0,
        }

    def introduce(self, say: Say) -> None:
        """Tells the size of the vocabulary, and how many pairs are left out."""
        source, target = self.prepared.source_tokenizer, self.prepared.target_tokenizer
        of_source = "" if source is target else f"{source.size:,} source pieces ({source.kind}), "
        say(f"{of_source}{target.size:,} {f'target pieces ({target.kind})' if of_source else 'pieces'}")
        corpus, normalization = self.prepared.corpus, target.normalization
        for name, part in (("validation", corpus.validation), ("test", corpus.test)):
            if part is not None and (advice := unreachable(part, name, normalization)):
                say(advice)
        if left_out := self.trainer.examples.left_out:
            limit = self.recipe.batches.max_length
            say(f"{left_out} training pairs are longer than batches.max_length ({limit}): left out")

    def begin(self, folder: Path, log: RunLog) -> None:
        """Keeps what the training text held, for warnings; draws nothing: `s2s data check` shows a corpus."""
        corpus, cut = self.prepared.corpus, self.prepared.source_tokenizer
        texts = (source for source, _ in pairs(corpus.train))
        found = seen_in(texts, self.prepared.train.source_pieces(), cut)
        found.save(folder / TOKENIZER, corpus.validation["source"][:_COMPARED], cut)

    def validate(self, log: RunLog) -> float:
        """Measures the loss, translates and scores."""
        settings, prepared, trainer = self.recipe.validation, self.prepared, self.trainer
        loss = mean_loss(trainer.model, prepared.validation, self.recipe.batches, trainer.computer)
        rows = prepared.corpus.validation
        rows = rows.select(range(min(settings.sentences or len(rows), len(rows))))
        decoding = self.recipe.decoding.model_copy(update={"beam": settings.beam})
        translator = Translator(trainer.model, prepared.source_tokenizer, prepared.target_tokenizer, decoding)
        sources, references = list(rows["source"]), list(rows["target"])
        translations = [t.text for t in translator.translate(sources)]
        found = {"loss": loss, **score(translations, references)}
        samples = [Sample(*row) for row in zip(sources, references, translations, strict=True)]
        log.validation(trainer.update, found, samples[:_SAMPLES])
        self._picture_attention(log)
        advice = collapse(sources, translations)
        if advice:
            log.say(advice)
        return -found[settings.metric] if settings.metric in LOWER_IS_BETTER else found[settings.metric]

    def test(self, folder: Path, log: RunLog) -> None:
        """Translates the test set and scores the translations."""
        if self.prepared.corpus.test is None:
            return
        evaluation = evaluate_run(folder, "test", overrides=self.overrides, meter=log.meter)
        log.settings(flat(self.recipe.model_dump(mode="json")), evaluation.main_scores())
        log.say(str(evaluation))
        for source, translation in evaluation.examples(3):
            log.say_pair(source, translation)

    def _picture_attention(self, log: RunLog) -> None:
        prepared, trainer = self.prepared, self.trainer
        lengths = np.maximum(prepared.validation.source_lengths, prepared.validation.target_lengths)
        # a picture grows with both sides, and nobody reads hundreds of pieces
        short = np.flatnonzero(lengths <= _DRAWN_PIECES)
        if not len(short):
            return
        source, target = prepared.validation.pair(int(short[0]))
        batch = collate([source], [target], [0]).to(trainer.computer.device)
        with torch.no_grad():
            memory = trainer.model.encoder(batch.source, batch.source_valid)
            weights = trainer.model.decoder.attention_weights(memory, batch.target_in)[0]
        if len(weights):
            pieces = (
                [*prepared.source_tokenizer.pieces(source), "</s>"],
                [*prepared.target_tokenizer.pieces(target), "</s>"],
            )
            title = f"{self.recipe.name}, update {trainer.update}: attention of the last layer"
            log.picture("attention/last_layer", attention_picture(weights[-1], *pieces, title), trainer.update)
