"""`s2s train`: from a recipe to a trained and tested model."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from s2s.data.batches import collate
from s2s.decoding.translator import Translator, collapse
from s2s.errors import UserError
from s2s.evaluation.metrics import score
from s2s.models.contract import Seq2Seq, parameter_count
from s2s.recipe.reading import read
from s2s.recipe.schema import Recipe
from s2s.run import manifest
from s2s.run.evaluation import evaluate_run
from s2s.run.folder import MANIFEST, RECIPE, TOKENIZER, alone, check_free, check_resumable, create, flat, folder_of
from s2s.run.loading import build_model, load_tokenizers
from s2s.run.preparing import Prepared, prepare
from s2s.training.checkpoint import Checkpoints, Progress, average, read_progress, read_tensors
from s2s.training.devices import choose
from s2s.training.logger import METRICS, RunLog, Sample
from s2s.training.pictures import attention_picture
from s2s.training.trainer import Trainer
from s2s.training.translation import mean_loss, translation_trainer

_SAMPLES = 5
_DRAWN_PIECES = 40


def train(recipe: Recipe, console: Console, overwrite: bool = False, prepared: Prepared | None = None) -> Path:
    """Trains a new run; its folder is made only when data, tokenizers and model are found good.

    Args:
        recipe: the resolved recipe.
        console: where progress is shown.
        overwrite: replace a run that is there.
        prepared: the recipe's corpus, where it was loaded and encoded before; None: that is done now.

    Returns:
        The run's folder.
    """
    check_free(folder_of(recipe), overwrite)
    return _Run(recipe, console, prepared=prepared).finish(None, overwrite)


def resume(folder: Path, console: Console, overrides: Sequence[str] = ()) -> Path:
    """Continues a run from its last checkpoint, as if it had never stopped.

    Args:
        folder: the run's folder.
        console: where progress is shown.
        overrides: `section.key=value`, for `data` and `device`.

    Raises:
        UserError: it is not a run, or its recipe or its training data has changed since.
    """
    check_resumable(folder, overrides)
    return _Run(read(folder / RECIPE, overrides), console, overrides).finish(folder, overwrite=False)


@dataclass
class _Run:
    recipe: Recipe
    console: Console
    overrides: Sequence[str] = ()
    prepared: Prepared | None = None

    def finish(self, folder: Path | None, overwrite: bool) -> Path:
        recipe = self.recipe
        computer = choose(recipe.device)
        self.say(f"{recipe.name} on {computer}")
        known = load_tokenizers(folder / TOKENIZER, recipe.tokenizer) if folder else None
        prepared = self.prepared or prepare(recipe, known, self.say)
        tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
        model = build_model(recipe, tokenizers[0].size, tokenizers[1].size).to(computer.device)
        self._check_lengths(model, prepared)
        trainer = translation_trainer(model, prepared.train, recipe.training, recipe.batches, recipe.seeds, computer)
        folder = folder or create(recipe, tokenizers, overwrite)
        with alone(folder):
            self._train_and_test(folder, prepared, trainer)
        return folder

    def _train_and_test(self, folder: Path, prepared: Prepared, trainer: Trainer) -> None:
        recipe, model = self.recipe, trainer.model
        self._describe(folder, prepared, trainer)
        checkpoints = Checkpoints(folder, recipe.validation.keep_best, recipe.training.average_last or 1)
        progress = self._continue(trainer, checkpoints)
        with RunLog(folder, progress.update, recipe.training.updates, self.console) as log:
            progress = self._train(trainer, prepared, checkpoints, progress, log)
            memory = trainer.computer.peak_memory() / 2**30
            log.say(f"trained in {progress.seconds / 60:.1f} minutes, peak memory {memory:.1f} GiB")
            if recipe.training.average_last:
                average(model, checkpoints.numbered()[-recipe.training.average_last :])
                checkpoints.save_average(model, progress)
            self._test(folder, prepared, log)

    def _check_lengths(self, model: Seq2Seq, prepared: Prepared) -> None:
        """Before anything is made: positions that were not learned would stop the run at its first validation."""
        for part, lengths in (
            (model.encoder, prepared.validation.source_lengths),
            (model.decoder, prepared.validation.target_lengths),
        ):
            longest = max(int(lengths.max()), self.recipe.batches.max_length)
            if part.longest is not None and part.longest < longest:
                raise UserError(
                    f"the model knows {part.longest} positions, but batches.max_length is "
                    f"{self.recipe.batches.max_length}, and the longest validation sentence has {lengths.max()} pieces",
                    where="model.max_positions",
                    remedy=f"set model.max_positions={longest} or higher",
                )

        if model.decoder.one_to_one:
            for name, part in (("train", prepared.train), ("validation", prepared.validation)):
                unequal = np.flatnonzero(part.source_lengths != part.target_lengths)
                if len(unequal):
                    sizes = part.source_lengths[unequal[0]] - 1, part.target_lengths[unequal[0]] - 1
                    raise UserError(
                        f"a model of kind {self.recipe.model.kind} writes one piece for each that it reads, but "
                        f"{len(unequal):,} pairs of {name} differ in length, the first with {sizes[0]} and {sizes[1]}",
                        where="model.kind",
                        remedy="give a corpus of equally many words a side, with tokenizer.kind: word and "
                        "tokenizer.shared: false, or take another model",
                    )

    def say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _describe(self, folder: Path, prepared: Prepared, trainer: Trainer) -> None:
        path, hashes = folder / MANIFEST, prepared.hashes()
        for start in manifest.read(path):
            if start["hashes"] != hashes:
                changed = ", ".join(n for n in hashes if hashes[n] != start["hashes"].get(n))
                raise UserError(
                    f"{changed} changed since the run was started",
                    where=str(folder),
                    remedy="restore the files, or start a new run with run.dir=DIR",
                )
        counts = {
            "train": len(prepared.train),
            "too_long": trainer.examples.left_out,
            "validation": len(prepared.validation),
            "test": len(prepared.corpus.test) if prepared.corpus.test is not None else 0,
        }
        manifest.write(manifest.describe(self.recipe, trainer.computer, trainer.model, hashes, counts), path)
        self.say(
            f"{parameter_count(trainer.model):,} parameters · {prepared.target_tokenizer.size:,} pieces · "
            f"{len(trainer.groups)} updates an epoch · {trainer.micro_batches} micro-batches an update"
        )
        if left_out := trainer.examples.left_out:
            limit = self.recipe.batches.max_length
            self.say(f"{left_out} training pairs are longer than batches.max_length ({limit}): left out")

    def _continue(self, trainer: Trainer, checkpoints: Checkpoints) -> Progress:
        last = checkpoints.last()
        if last is None:
            if (checkpoints.run / METRICS).exists():
                self.say("no checkpoint yet: starting again from the first update")
            return Progress(0, 0, 0)
        progress = read_progress(last)
        place = {"update": progress.update, "epoch": progress.epoch, "position": progress.position}
        trainer.load_state(read_tensors(last / "training.safetensors"), place)
        self.say(f"continuing after update {progress.update}")
        return progress

    def _train(
        self, trainer: Trainer, prepared: Prepared, checkpoints: Checkpoints, progress: Progress, log: RunLog
    ) -> Progress:
        settings, total = self.recipe.validation, self.recipe.training.updates
        if self._out_of_patience(progress):
            return progress
        started = time.perf_counter() - progress.seconds
        for update in trainer.updates(total):
            log.update(update)
            if update.update % settings.every and update.update != total:
                continue
            tensors, place = trainer.state()
            with trainer.optimization.averaged():
                score = self._validate(trainer, prepared, log)
                scores = [*progress.scores, (update.update, score)]
                progress = Progress(**place, score=score, scores=scores, seconds=time.perf_counter() - started)
                checkpoints.save(trainer.model, tensors, progress)
            if self._out_of_patience(progress):
                log.say(f"stopping: no better {settings.metric} in {settings.patience} validations")
                break
        return progress

    def _out_of_patience(self, progress: Progress) -> bool:
        patience = self.recipe.validation.patience
        scores = [score for _, score in progress.scores]
        return patience is not None and bool(scores) and len(scores) - 1 - scores.index(max(scores)) >= patience

    def _validate(self, trainer: Trainer, prepared: Prepared, log: RunLog) -> float:
        settings, model = self.recipe.validation, trainer.model
        loss = mean_loss(model, prepared.validation, self.recipe.batches, trainer.computer)
        pairs = prepared.corpus.validation
        pairs = pairs.select(range(min(settings.sentences or len(pairs), len(pairs))))
        decoding = self.recipe.decoding.model_copy(update={"beam": settings.beam})
        translator = Translator(model, prepared.source_tokenizer, prepared.target_tokenizer, decoding)
        sources, references = list(pairs["source"]), list(pairs["target"])
        translations = [t.text for t in translator.translate(sources)]
        bleu, chrf = score(translations, references)
        samples = [Sample(*row) for row in zip(sources, references, translations, strict=True)]
        log.validation(trainer.update, {"loss": loss, "bleu": bleu, "chrf": chrf}, samples[:_SAMPLES])
        self._picture_attention(trainer, prepared, log)
        advice = collapse(sources, translations)
        if advice:
            log.say(advice)
        return {"loss": -loss, "bleu": bleu, "chrf": chrf}[settings.metric]

    def _picture_attention(self, trainer: Trainer, prepared: Prepared, log: RunLog) -> None:
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
            log.picture("attention/last_layer", attention_picture(weights[-1], *pieces), trainer.update)

    def _test(self, folder: Path, prepared: Prepared, log: RunLog) -> None:
        if prepared.corpus.test is None:
            return
        evaluation = evaluate_run(folder, "test", overrides=self.overrides)
        log.settings(flat(self.recipe.model_dump(mode="json")), evaluation.main_scores())
        log.say(str(evaluation))
        for line in evaluation.examples(3):
            log.say(line)
