"""Load trained models for inference, and evaluate them, for any task."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from rich.console import Console

from s2s.data.sources import Source, Split, TrainOverlap
from s2s.data.tokenizers import Tokenizer
from s2s.decoding.generate import TextTranslator
from s2s.errors import UserError, counted, quote_path
from s2s.files import EXPORTED, explain_os_error, is_number, read_file
from s2s.models.base import Seq2Seq
from s2s.recipe.pairs import PairRecipe
from s2s.recipe.schema import DeviceSettings, TrainRecipe
from s2s.run import manifest
from s2s.run.folder import (
    MANIFEST,
    RECIPE,
    TOKENIZER,
    RunConfig,
    has_lost_checkpoints,
    lost_checkpoints_error,
    open_ensemble,
    run_dir_of,
    run_lock,
)
from s2s.run.tasks import read, task_of
from s2s.tasks.base import AnyRun, AnyTask, Evaluation, EvaluationOptions, LoadedModel, PreparedData
from s2s.tasks.protocols import Inspectable
from s2s.tasks.seq2seq import build_translator
from s2s.training.checkpoint import Checkpoints, average_checkpoints, check_weights, digest_of_weights, read_progress
from s2s.training.device import DeviceContext, select_device, setup_process
from s2s.training.progress import ProgressBar, no_progress_bar, progress_bar
from s2s.training.tensor_files import load_weights

if TYPE_CHECKING:
    import datasets

    from s2s.inspection.inspection import Inspection, InspectionRequest
    from s2s.tasks.coverage import VocabularyCoverage

_WEIGHTS = "model.safetensors"
_SPLITS = ("validation", "test")


def load(run: RunConfig | Path, checkpoint: str | None = None, overrides: Sequence[str] = ()) -> AnyRun:
    """Load a trained model.

    Args:
        run: An opened run, or the folder of a run or a checkpoint; `RUN+RUN` joins runs to an ensemble.
        checkpoint: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.
        overrides: `section.key=value` arguments that may change after training; only with a folder.

    Returns:
        The model in evaluation mode on its device, with its recipe and tokenizers.

    Raises:
        UserError: The folder is not a run, the checkpoint does not exist, or a file is damaged.
    """
    run = open_ensemble(run, overrides) if isinstance(run, Path) else run
    if run.others:
        return _join([load(member, checkpoint) for member in (replace(run, others=()), *run.others)], run.name)
    folder = find_checkpoint(run.path, checkpoint)
    kept, recipe = run.kept, run.recipe
    if read_file(folder / RECIPE) != read_file(run.path / RECIPE):
        # The checkpoint's recipe describes the model that was trained.
        kept, recipe = read(folder / RECIPE), read(folder / RECIPE, run.overrides)
    task = task_of(recipe)
    recipe.check_overrides(kept)
    device_context = _inference_device(recipe.device, run.overrides)
    tokenizers = load_tokenizers(folder, recipe)
    # Initialization must not change the random state of the calling process.
    with torch.random.fork_rng(devices=[]):
        model = task.build(recipe, tokenizers)
    check_saved(folder)
    load_weights(model, folder / _WEIGHTS)
    return LoadedModel(
        run.path, folder, recipe, model.to(device_context.device).eval(), tokenizers, device_context, run.fetched
    )


def _join(members: Sequence[AnyRun], name: Path) -> AnyRun:
    """Join loaded runs to an ensemble, whose tokenizers and decoding settings are those of the first one."""
    from s2s.models.ensemble import Ensemble

    first, models = members[0], list[Seq2Seq]()
    for member in members:
        if not isinstance(member.model, Seq2Seq):
            what = f"an ensemble needs models with a decoder; {member.path} is a run of task {member.recipe.task}"
            raise UserError(what, where=str(name), remedy="name one run")
        if [each.digest for each in member.tokenizers] != [each.digest for each in first.tokenizers]:
            raise UserError(
                f"{member.path} has another vocabulary than {first.path}",
                where=str(name),
                remedy="join runs of one recipe whose corpus and tokenizer settings are equal",
            )
        models.append(member.model)
    mean = getattr(first.recipe, "decoding").ensemble  # noqa: B009
    # Marked as fetched: its scores belong to no member's folder.
    return replace(first, path=name, model=Ensemble(models, mean), fetched=True)


def average_run(run: RunConfig, last: int) -> list[Path]:
    """Average the weights of a run's last validated checkpoints into its checkpoint `average`.

    Args:
        last: Number of checkpoints.

    Returns:
        Folders of the averaged checkpoints, oldest first.

    Raises:
        UserError: The run keeps fewer validated checkpoints, one of them is damaged, the run is being trained, or it
            is an export.
    """
    if (run.path / EXPORTED).exists():
        raise UserError("is an export, which has no checkpoints", str(run.path), "average the run itself")
    with run_lock(run.path) as folder:
        checkpoints = Checkpoints(folder)
        found = checkpoints.validated()[-last:]
        if len(found) < last:
            what = f"{last} checkpoints requested, but the run keeps {counted(len(found), 'validated checkpoint')}"
            remedy = f"lower --last, or train with training.average_last={last}"
            raise UserError(what, where=str(folder), remedy=remedy)
        for path in found:
            check_weights(path)
        model = load(run, found[-1].name).model
        average_checkpoints(model, found)
        checkpoints.save_average(model, read_progress(found[-1]))
    return found


def check_saved(folder: Path) -> None:
    """Verify the files of a checkpoint or an export against their saved digests.

    Raises:
        UserError: A file has changed or is missing, or there is no digest.
    """
    if (folder / EXPORTED).exists():
        from s2s.run.exported import check_files

        check_files(folder)
    else:
        check_weights(folder)


def load_for_inference(run: RunConfig, checkpoint: str | None = None) -> AnyRun:
    """Configure torch as the recipe says (threads, determinism), then load the model.

    For commands that use one model. Inside a larger program, use `load`.

    Args:
        checkpoint: See `load`.
    """
    setup_process(run.recipe.device)
    return load(run, checkpoint)


def line_translator(
    run: RunConfig, nbest: int, checkpoint: str | None = None
) -> "tuple[TextTranslator, VocabularyCoverage | None]":
    """Load a run that translates lines.

    Args:
        nbest: Number of translations per line.
        checkpoint: See `load`.

    Returns:
        The translator and the vocabulary coverage of the training data (None if not saved).
    """
    from s2s.tasks.coverage import VocabularyCoverage

    loaded = load_for_inference(run, checkpoint).narrow(PairRecipe, Seq2Seq)
    return build_translator(loaded, nbest), VocabularyCoverage.load(loaded.checkpoint / TOKENIZER)


def load_tokenizers(folder: Path, recipe: TrainRecipe) -> tuple[Tokenizer, ...]:
    """Load the tokenizers of a run or a checkpoint: one, one each for source and target, or none without texts."""
    return tuple(Tokenizer.load(folder / TOKENIZER, name) for name in recipe.tokenizer_names)


def _inference_device(settings: DeviceSettings, overrides: Sequence[str]) -> DeviceContext:
    """Select the device for inference."""
    try:
        return select_device(settings)
    except UserError:
        if any(override.startswith("device.") for override in overrides):
            raise
        return select_device(settings.model_copy(update={"kind": "auto"}))


def find_checkpoint(path: Path, name: str | None) -> Path:
    """Return the folder of a run's checkpoint.

    Args:
        path: Folder of a run, or of a checkpoint.
        name: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.

    Raises:
        UserError: The checkpoint does not exist.
    """
    if (path / _WEIGHTS).exists():
        if name is not None:
            raise UserError("is a checkpoint itself", where=str(path), remedy=f"leave out --checkpoint {name}")
        # Resolved, because a link or `.` has no checkpoint name.
        return path.resolve()
    checkpoints = Checkpoints(path)
    average = checkpoints.folder / "average"
    if name is None:
        found = average if average.exists() else checkpoints.best()
    elif name in ("best", "last"):
        found = checkpoints.best() if name == "best" else checkpoints.last()
    else:
        found = checkpoints.folder / (name.zfill(7) if is_number(name) else name)
    if found is None and (path / EXPORTED).exists():
        raise UserError(
            "is an export for ONNX Runtime or CTranslate2, which s2s does not load",
            where=str(path),
            remedy="name the run itself; docs/export.md shows how to load the export",
        )
    if found is None and has_lost_checkpoints(path):
        raise lost_checkpoints_error(path)
    if found is None:
        raise UserError(
            "has no checkpoint yet",
            where=str(path),
            remedy=f"wait for its training, or resume it: s2s train {quote_path(path)} --resume",
        )
    there = sorted(p.name for p in checkpoints.folder.glob("[!.]*"))
    # A name such as `.` would lead outside the folder of checkpoints.
    if found.parent != checkpoints.folder or found.name not in there:
        raise UserError(
            f"no checkpoint {name!r}; available: {', '.join(there) or 'none'}",
            where=str(path),
            remedy="name one of these, best or last",
        )
    return found


def inspect_input(run: RunConfig, focus: "InspectionRequest", checkpoint: str | None = None) -> "Inspection":
    """Compute the inspection that `s2s inspect` shows.

    Args:
        focus: Inputs and selection. Without inputs, an example of the test set (or of the validation set) is used.
        checkpoint: See `load`.

    Raises:
        UserError: The input does not fit the model, or the example, layer or head does not exist.
    """
    return inspect_loaded(load_for_inference(run, checkpoint), run, focus)


def inspect_loaded(loaded: AnyRun, run: RunConfig, focus: "InspectionRequest") -> "Inspection":
    """Compute the inspection of a loaded model; see `inspect_input`."""
    from s2s.inspection.inspection import MOST_INSPECTED, check_chosen
    from s2s.inspection.words import check_length

    task = task_of(loaded.recipe)
    if not isinstance(task, Inspectable):
        raise UserError(
            f"runs of task {loaded.recipe.task} cannot be inspected",
            where=str(loaded.path),
            remedy="name a run of another task",
        )
    # Classifiers truncate long texts, and captioning models read no text.
    if loaded.recipe.task not in ("classification", "images", "captioning"):
        for text in (*focus.inputs, focus.output or ""):
            check_length(len(loaded.tokenizers[0].encode(text)), MOST_INSPECTED)
    if not focus.inputs:
        split = "validation" if loaded.recipe.data.test is None else "test"
        focus = replace(focus, part=evaluation_split(run, loaded.recipe, split), split=split)
    found = task.inspect(loaded, focus)
    check_chosen(found, focus)
    return found


def evaluate(
    run: RunConfig | Path,
    split: str = "test",
    checkpoint: str | None = None,
    overrides: Sequence[str] = (),
    keep: bool = True,
    progress_bar: ProgressBar = no_progress_bar,
    scoring: EvaluationOptions | None = None,
) -> Evaluation:
    """Evaluate a run on a split with the metrics of its task.

    Args:
        run: An opened run, or its folder.
        split: `test`, `validation` or `train`.
        checkpoint: See `load`.
        overrides: `section.key=value` arguments that may change after training; only with a folder.
        keep: Save the result in the run's folder.
        scoring: Evaluation options, which replace `split`.

    Raises:
        UserError: The folder is not a run, the recipe has no such split, or the files are empty or differ in
            length.
    """
    run = open_ensemble(run, overrides) if isinstance(run, Path) else run
    loaded = load(run, checkpoint)
    task = task_of(loaded.recipe)
    scoring = scoring or EvaluationOptions(split)
    part = _from_files(*scoring.files) if scoring.files else evaluation_split(run, loaded.recipe, scoring.split)
    # Computed now, because a running training may write another average meanwhile.
    weights = digest_of_weights(loaded.checkpoint)
    overlap = None if scoring.files else train_overlap(run, loaded.recipe, scoring.split, part)
    evaluation = replace(task.evaluate(loaded, part, scoring, progress_bar), weights=weights, train_overlap=overlap)
    if keep and not loaded.fetched:
        evaluation.save()
    return evaluation


def train_overlap(run: RunConfig, recipe: TrainRecipe, split: str, part: Split) -> TrainOverlap | None:
    """Return how much of a split occurs in the training data; None if nothing overlaps, or it is unknown."""
    source = task_of(recipe).source(recipe)
    return manifest.train_overlap(run_dir_of(run.path) / MANIFEST, split, lambda: source.digest(part))


def default_split(run: AnyRun) -> str:
    """Return the split for inspecting a run: test, or validation without a test set."""
    return "test" if run.recipe.data.test is not None else "validation"


def evenly_spaced(count: int, most: int) -> Int[np.ndarray, " rows"]:
    """Return at most `most` evenly spaced row indices, because a corpus may be sorted.

    Example:
        >>> evenly_spaced(10, 4).tolist()
        [0, 3, 6, 9]
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(int))


def evaluation_split(run: RunConfig, recipe: TrainRecipe, split: str) -> Split:
    """Return a split of a run that contains no training example.

    Args:
        split: `validation` or `test`.

    Raises:
        UserError: The recipe has no such split, or the held-out examples would differ from those of the training.
    """
    if split not in _SPLITS:
        raise UserError(f"there is no split {split!r}", remedy=f"name {' or '.join(_SPLITS)}")
    source = task_of(recipe).source(recipe)
    part, section = source.load_split(split), source.section
    wanted = getattr(recipe.data, split)
    if part is None and isinstance(wanted, int):
        part = getattr(source.load(), split)
        starts = manifest.read(run_dir_of(run.path) / MANIFEST)
        then: dict[str, str] = starts[0]["hashes"] if starts else {}
        known = {name: digest for name, digest in then.items() if name.startswith(f"held_out_{split}")}
        then_source, then_part = _split_with_trained_prefix(run, recipe, split) or (source, part)
        same = then_source.held_out(split, then_part).items() <= known.items()
        # A run that held out nothing for this split has trained on everything that could be drawn now.
        held_out = isinstance(getattr(run.kept.data, split), int)
        if not held_out or (known and not same):
            raise UserError(
                f"the {split} set is drawn from the training data, and would differ from the one held out in training: "
                "it would contain training examples",
                where=f"{run.path}: {section}.{split}: {wanted}",
                remedy=f"restore the training data and {section}.seed, or name a file or split: {section}.{split}=FILE",
            )
    if part is None:
        raise UserError(f"the run's recipe has no {split} set", remedy=f"set {section}.{split}=FILE")
    return part


def _split_with_trained_prefix(
    run: RunConfig, recipe: TrainRecipe, split: str
) -> tuple[Source[Any, Any], Split] | None:
    """Return the split with the prefix of the training, or None if it is the same now."""
    then = getattr(run.kept.data, "prefix", None)
    if then == getattr(recipe.data, "prefix", None):
        return None
    data = recipe.data.model_copy(update={"prefix": then})
    source = task_of(recipe).source(recipe.model_copy(update={"data": data}))
    return source, getattr(source.load(), split)


def data_hashes(task: AnyTask, recipe: TrainRecipe, data: PreparedData) -> dict[str, str]:
    """Compute the hashes by which a run's manifest identifies its data.

    Returns:
        Hashes by name: of the training data, the held-out sets, and the validation set that compares checkpoints.
    """
    source = task.source(recipe)
    held_out = [source.held_out(name, part) for name, part in data.corpus.splits().items() if name != "train"]
    compared_by = {"validation": source.digest_of_all(data.corpus.validation)}
    return data.hashes() | {name: digest for each in held_out for name, digest in each.items()} | compared_by


def _from_files(source: Path, *references: Path) -> "datasets.Dataset":
    from s2s.data.text_files import line_rows

    rows = list(line_rows(source, *references))
    if not rows:
        raise UserError("has no lines", where=str(source), remedy="name a file with one sentence per line")
    return pairs_to_score([row[0] for row in rows], [row[1:] for row in rows])


def pairs_to_score(sources: Sequence[str], references: Sequence[Sequence[str]]) -> "datasets.Dataset":
    """Build a data set of sources with one or more references each.

    Returns:
        A data set with the columns `source`, `target` (the first reference) and, if needed, `references`.
    """
    from datasets import Dataset

    columns: dict[str, object] = {"source": list(sources), "target": [first for first, *_ in references]}
    if any(len(several) > 1 for several in references):
        columns["references"] = list(map(list, references))
    return Dataset.from_dict(columns)


def score_together(
    runs: Sequence[RunConfig],
    scoring: EvaluationOptions,
    checkpoint: str | None,
    tell: Callable[[str], None],
    groups: Mapping[str, int] | None = None,
) -> tuple[list[Evaluation], Sequence[object]]:
    """Evaluate runs of one task, and test each against the first.

    Args:
        checkpoint: See `load`.
        tell: Called with a warning if the scores cannot be saved.
        groups: Number of runs of each group of seeds, in the order of the runs. The groups are then tested instead.
    """
    setup_process(runs[0].recipe.device)
    # stderr, because the results may be redirected to a file; no progress bar unless it is a terminal.
    console = Console(stderr=True)
    shown = progress_bar(console) if console.is_terminal else no_progress_bar
    evaluations = [
        evaluate(run, checkpoint=checkpoint, keep=False, progress_bar=shown, scoring=scoring) for run in runs
    ]
    comparisons = type(evaluations[0]).compare(evaluations) if len(runs) > 1 and not groups else ()
    if groups:
        in_turn = iter(evaluations)
        grouped = {name: list(itertools.islice(in_turn, count)) for name, count in groups.items()}
        comparisons = type(evaluations[0]).compare_groups(grouped)
    # Scores with another search, checkpoint, corpus, tokenizer or metrics are not the run's result.
    own = checkpoint is None and not runs[0].overrides and scoring.tokenizer is None and not scoring.metrics
    for evaluation in (e for e, run in zip(evaluations, runs, strict=True) if own and not (run.fetched or run.others)):
        try:
            evaluation.save()
        except OSError as error:
            tell(f"the scores could not be saved: {explain_os_error(error)}")
    return evaluations, comparisons
