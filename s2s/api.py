"""The public names of `import s2s`: what notebooks need, each a few lines over what the commands use.

Mistakes raise `s2s.errors.UserError`, with the message that the command line prints.
"""

import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

from s2s.errors import UserError
from s2s.recipe.reading import recipe_path
from s2s.recipe.schema import AnyRecipe, BleuTokenizer
from s2s.run.folder import check_free, check_resumable, open_run, run_dir
from s2s.run.tasks import read
from s2s.training import cpu_affinity

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

    from s2s.cli.compare import Planned
    from s2s.evaluation.metrics import Score
    from s2s.run.tasks import AnyTask
    from s2s.run.trained_run import Run
    from s2s.training.step import StepResult

Overrides = Mapping[str, object]
"""Values by dotted key, as in `{"training.updates": 500}`; they take the place of what a recipe says."""


_OF_THE_PROCESS = {"device", "device.threads", "device.deterministic"}


def load(run: str | Path, checkpoint: str | None = None, overrides: Overrides | None = None) -> "Run":
    """Loads a trained model; torch's threads and random numbers stay as they are, unless `overrides` ask for threads.

    Args:
        run: the folder of a run, or of one checkpoint.
        checkpoint: `best`, `last`, `average` or a number; when None, the average where there is one, else the best.
        overrides: what may change after training, such as `decoding.beam`, `data.root` or `device.threads`.

    Raises:
        UserError: it is no run, it has no such checkpoint, or a file is damaged.
    """
    found = open_run(Path(run), _words(overrides))
    from s2s.run.trained_run import Run
    from s2s.training.device import setup_process

    if not _OF_THE_PROCESS.isdisjoint(overrides or {}):
        setup_process(found.recipe.device)
    return Run(found, checkpoint)


def read_recipe(recipe: str | Path, overrides: Overrides | None = None) -> "AnyTask":
    """Reads and checks a recipe: a file, the name of one that comes with s2s, or the folder of a run.

    Raises:
        UserError: there is no such recipe, or it has mistakes; all of them are listed.
    """
    return read(recipe_path(Path(recipe)), _words(overrides))


def score(
    translations: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    lowercase: bool = False,
    metrics: Sequence[str] = (),
    tokenizer: BleuTokenizer = "auto",
) -> "dict[str, Score]":
    """Score translations as `s2s evaluate --hypotheses` does.

    Args:
        translations: The lines to score.
        references: For each line one reference, or several, which are scored together.
        lowercase: Score without regard to case.
        metrics: Of `bleu`, `chrf`, `ter`, `exact`, `cer`, `wer` and `cider`; all but the last when empty.
        tokenizer: sacreBLEU's tokenizer of BLEU and TER; `auto` chooses by the script of the references.

    Returns:
        The scores by metric, in percent, each with its 95 % interval and sacreBLEU's signature.

    Raises:
        UserError: There are not as many references as translations, or none; or a metric or tokenizer is unknown, or
            needs what is not installed.

    Example:
        >>> import s2s
        >>> found = s2s.score(["The cat sat."], [["The cat sat.", "A cat was sitting."]], metrics=["exact"])
        >>> found["exact"].value
        100.0
    """
    from s2s.evaluation.metrics import KNOWN, NAMES, scores
    from s2s.evaluation.tokenization import choose_tokenization

    if isinstance(translations, str) or not translations or len(translations) != len(references):
        raise UserError(
            f"{len(translations)} translations and {len(references)} references",
            remedy="give lists, with one reference or more for each translation",
        )
    if unknown := [name for name in metrics if name not in KNOWN]:
        raise UserError(f"there is no metric {unknown[0]!r:.60}", remedy=f"name one of {', '.join(KNOWN)}")
    if empty := [place for place, each in enumerate(references) if not isinstance(each, str) and not each]:
        raise UserError("has no reference", where=f"references[{empty[0]}]", remedy="give one or more")
    tokenization = choose_tokenization(references, tokenizer)
    return scores(translations, references, lowercase, tuple(metrics) or NAMES, tokenization)


class Training:
    """A run that learns while it is iterated over, update by update; the test of its best checkpoint ends it.

    A run whose iteration is left early goes on from its last checkpoint with `train(folder, resume=True)`.

    Attributes:
        recipe: what is learned, and how.
        folder: where the run is kept.
    """

    def __init__(
        self,
        recipe: "AnyTask",
        folder: Path,
        begin: "Callable[[Console], Generator[StepResult, None, Path]]",
        quiet: bool,
    ) -> None:
        self.recipe, self.folder = recipe, folder
        self._begin, self._quiet = begin, quiet

    def __iter__(self) -> "Iterator[StepResult]":
        """Each update, when it is done.

        Raises:
            UserError: a number is not finite, the disk is full, or the data do not fit.
            Stopped: somebody interrupted it.
        """
        from rich.console import Console

        from s2s.training.device import setup_process

        setup_process(self.recipe.device)
        yield from self._begin(Console(quiet=self._quiet))


def train(
    recipe: "str | Path | AnyTask",
    overrides: Overrides | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = True,
) -> Training:
    """Prepares a training; nothing is learned, or written, before it is iterated over.

    Args:
        recipe: as for `read_recipe`, or what that gave.
        overrides: as for `read_recipe`; of a run that goes on, what `s2s train --resume` may change.
        overwrite: replace a run of the same name.
        resume: go on with the run in the folder `recipe`.
        quiet: print nothing.

    Raises:
        UserError: the recipe has mistakes, or its run is there already, or is none to go on with.
    """
    if isinstance(recipe, AnyRecipe):
        if overrides or resume:
            raise UserError("a recipe that was read is taken as it is", remedy="give overrides to s2s.read_recipe")
        asked = cast("AnyTask", recipe)
    elif resume:
        asked = check_resumable(Path(recipe), _words(overrides))
    else:
        asked = read_recipe(recipe, overrides)
    if not resume:
        check_free(asked, overwrite)
    going_on = Path(cast("str | Path", recipe)) if resume else None

    def begin(console: "Console") -> "Generator[StepResult, None, Path]":
        """Loads torch, and begins."""
        from s2s.run.training import run_training

        return run_training(asked, console, overwrite, None, going_on, _words(overrides) if resume else ())

    return Training(asked, going_on or run_dir(asked), begin, quiet)


class Comparison:
    """A comparison, by the folder that it is kept in: one that was begun, or one that is `planned`."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._planned: "Planned | None" = None
        self._limit = math.inf

    @classmethod
    def planned(
        cls,
        models: Sequence[str],
        recipe: str | Path | None = None,
        overrides: Overrides | None = None,
        profile: str | None = None,
        seeds: int | None = None,
        experiments: Sequence[str] = (),
        folder: str | Path | None = None,
        match: str | None = None,
    ) -> "Comparison":
        """Checks what is to be compared; nothing is measured, or written, before `go_on`.

        Args:
            models: as for `compare`, and so all others but one.
            recipe: the task.
            overrides: of the task, or of a model.
            profile: which questions, and how large.
            seeds: repetitions.
            experiments: only these.
            folder: where it is kept.
            match: what is made equal, `parameters` or `time`; parameters when None.

        Raises:
            UserError: a model or an experiment is unknown, or a setting is wrong.
        """
        # the words of a comparison are checked in one place
        from s2s.cli.compare import Order, order, time_limit

        path = None if recipe is None else Path(recipe)
        classes = path is not None and read_recipe(path).task == "classification"
        place = None if folder is None else Path(folder)
        task, recipe_of = (path, None) if classes else (None, path)
        words = (*models, *_words(overrides))
        asked = Order(words, profile, seeds, match, tuple(experiments), recipe_of, place, task)
        planned = order(asked)
        found = cls(planned.folder)
        found._planned, found._limit = planned, time_limit(asked, planned.summary)
        return found

    def go_on(self, quiet: bool = True, cluster: str | None = None) -> "Comparison":
        """Makes every measurement that is not there yet, and draws the report.

        One that was planned takes no longer than its profile says: what does not fit is left for when this is called
        again, however long it takes then.

        Other processes measure, and each imports the program that called: a script needs
        `if __name__ == "__main__":` around what it does, a notebook needs nothing.

        Args:
            quiet: print nothing.
            cluster: the address of a Ray cluster whose nodes measure: `auto`, `HOST:PORT` or `ray://HOST`; other
                processes of this machine when None.

        Raises:
            UserError: the folder holds no comparison, or another one, or the cluster cannot be used; or of some of its
                measurements no conclusion could be drawn, which its page says, too.
        """
        from s2s.cli.compare import check_cluster

        check_cluster(cluster)
        # before torch is loaded
        with cpu_affinity.save_affinity():
            from rich.console import Console

            from s2s.experiments.beginning import begin
            from s2s.experiments.cluster import Cluster
            from s2s.experiments.comparison import check_concluded, go_on

            with Cluster(cluster) if cluster else nullcontext() as connected:
                limit, self._limit = self._limit, math.inf
                if asked := self._planned:
                    begin(asked.folder, asked.base, asked.summary)
                    self._planned = None
                go_on(self.folder, Console(quiet=quiet), connected, limit=limit)
        self.report()
        check_concluded(self.folder)
        return self

    def table(self) -> "pandas.DataFrame":
        """What is found so far: a line for each row of the table and each model, with figure, interval and verdict.

        Raises:
            UserError: the folder holds no comparison, or a file of it is damaged.
        """
        import pandas

        from s2s.report.drawing import kept_comparison
        from s2s.report.matrix import matrix
        from s2s.report.papers import HEAD, table_rows

        summary, models, results = kept_comparison(self.folder)
        return pandas.DataFrame(list(table_rows(matrix(summary, models, results))), columns=list(HEAD))

    def report(self) -> Path:
        """Draws the page of what is found so far, and gives its path."""
        from s2s.report.drawing import draw

        return draw(self.folder)


def compare(
    models: Sequence[str],
    recipe: str | Path | None = None,
    overrides: Overrides | None = None,
    profile: str | None = None,
    seeds: int | None = None,
    experiments: Sequence[str] = (),
    folder: str | Path | None = None,
    quiet: bool = True,
) -> Comparison:
    """Compares models as `s2s compare` does, and returns when all is measured.

    Args:
        models: two and more, as `s2s recipe models` lists them, or with settings, as in `transformer:norm=post`.
        recipe: the task, of translation or classification; the profile's own when None.
        overrides: for the task, by `section.key`; or for a model, by `lstm.bidirectional`.
        profile: `quick`, `lecture` or `definitive`; for translation.
        seeds: repetitions; by profile when None.
        experiments: only these; those of the profile when empty.
        folder: where it is kept; `runs/compare-MODEL-MODEL` when None.
        quiet: print nothing.

    Raises:
        UserError: a model or an experiment is unknown, a setting is wrong, or the folder is taken.
    """
    return Comparison.planned(models, recipe, overrides, profile, seeds, experiments, folder).go_on(quiet)


def _words(overrides: Overrides | None) -> tuple[str, ...]:
    """As on the command line; what JSON spells, YAML reads."""
    found = (overrides or {}).items()
    return tuple(f"{key}={json.dumps(value, default=str, ensure_ascii=False)}" for key, value in found)
