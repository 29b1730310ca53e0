"""Public Python API of `import s2s`: load, train, score and compare models.

The functions wrap the code of the commands. Mistakes raise `s2s.errors.UserError` with the message that the command
line prints, but arguments instead of options.

Example:
    >>> import s2s
    >>> for step in s2s.train("translate", {"training.updates": 500}):  # doctest: +SKIP
    ...     print(step.update, step.loss)
    >>> s2s.load("runs/translate").translate(["A dog runs."])  # doctest: +SKIP
"""

import json
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

from s2s.arguments import (
    PYTHON_WORDS,
    check_integer,
    check_path,
    check_references,
    check_text,
    check_texts,
    python_wording,
    reword_methods,
)
from s2s.errors import UserError
from s2s.recipe.reading import recipe_path
from s2s.recipe.schema import BleuTokenizer, TrainRecipe
from s2s.run.folder import check_free, check_resumable, open_ensemble, run_dir
from s2s.run.tasks import read
from s2s.training import cpu_affinity

if TYPE_CHECKING:
    import pandas
    from rich.console import Console

    from s2s.comparison.request import Planned
    from s2s.evaluation.metrics import Score
    from s2s.run.trained_run import Run
    from s2s.training.step import StepResult

Overrides = Mapping[str, object]
"""Recipe values by dotted key, such as `{"training.updates": 500}`; they override the values of the recipe."""


_OF_THE_PROCESS = {"device", "device.threads", "device.deterministic"}


@python_wording()
def load(run: str | Path, checkpoint: str | int | None = None, overrides: Overrides | None = None) -> "Run":
    """Load a trained model for inference.

    The thread count and the random state of torch do not change unless `overrides` sets the device.

    Args:
        run: The folder of a run or of one checkpoint, or `hf:USER/NAME` for a run on the Hugging Face hub. `RUN+RUN`
            joins runs to an ensemble.
        checkpoint: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.
        overrides: Settings that may change after training, such as `decoding.beam`, `data.root` or `device.threads`.

    Returns:
        The model with one method per use, such as `translate`, `classify`, `score` and `evaluate`.

    Raises:
        UserError: The folder is not a run, the checkpoint does not exist, or a file is damaged.

    Example:
        >>> import s2s
        >>> model = s2s.load("runs/translate", overrides={"decoding.beam": 10})  # doctest: +SKIP
        >>> model.translate(["A dog runs."])  # doctest: +SKIP
        ['Ein Hund läuft.']
    """
    found = open_ensemble(check_path("run", run), _words(overrides))
    from s2s.run.trained_run import Run
    from s2s.training.device import setup_process

    if not _OF_THE_PROCESS.isdisjoint(overrides or {}):
        setup_process(found.recipe.device)
    return Run(found, None if checkpoint is None else str(checkpoint))


@python_wording()
def read_recipe(recipe: str | Path, overrides: Overrides | None = None) -> TrainRecipe:
    """Read and validate a recipe.

    Args:
        recipe: A YAML file, the name of a recipe that comes with s2s, or the folder of a run.
        overrides: Values that override those of the recipe.

    Returns:
        The validated recipe, a frozen pydantic model.

    Raises:
        UserError: The recipe does not exist or has mistakes. The message lists all mistakes.

    Example:
        >>> import s2s
        >>> s2s.read_recipe("translate", {"training.updates": 500}).training.updates
        500
    """
    return read(recipe_path(check_path("recipe", recipe)), _words(overrides))


@python_wording()
def runs(folder: str | Path = "runs") -> "pandas.DataFrame":
    """List the runs in a folder with their test scores, as `s2s runs` does.

    A damaged run is left out, with a warning.

    Returns:
        One row per run, with a column for each score.

    Raises:
        UserError: There is no such folder.

    Example:
        >>> import s2s
        >>> s2s.runs("runs").groupby("model")["bleu"].mean()  # doctest: +SKIP
    """
    import pandas

    from s2s.run.listing import list_runs, rows

    errors = list[UserError]()
    found = list_runs(check_path("folder", folder), errors.append)
    for error in errors:
        warnings.warn(str(error), stacklevel=3)
    return pandas.DataFrame(rows(found))


@python_wording()
def score(
    translations: Sequence[str],
    references: Sequence[str] | Sequence[Sequence[str]],
    lowercase: bool = False,
    metrics: Sequence[str] = (),
    tokenizer: BleuTokenizer = "auto",
    sources: Sequence[str] | None = None,
) -> "dict[str, Score]":
    """Score translations as `s2s evaluate --hypotheses` does.

    Args:
        translations: Translations to score.
        references: One reference per translation, or several, which are scored together.
        lowercase: Ignore case.
        metrics: Any of `bleu`, `chrf`, `ter`, `exact`, `cer`, `wer`, `cider`, `comet`, `bertscore` or of another
            package; empty: the first six.
        tokenizer: sacreBLEU tokenizer for BLEU and TER; `auto` chooses by the script of the references.
        sources: One source per translation, for metrics that need it, such as `comet`.

    Returns:
        The scores by metric, in percent, each with its 95 % confidence interval and sacreBLEU signature.

    Raises:
        UserError: The numbers of translations, references and sources differ or are zero, a metric or tokenizer is
            unknown, or a package that it needs is not installed.

    Example:
        >>> import s2s
        >>> found = s2s.score(["The cat sat."], [["The cat sat.", "A cat was sitting."]], metrics=["exact"])
        >>> found["exact"].value
        100.0
    """
    from s2s.evaluation.metrics import NAMES, check_metrics, scores
    from s2s.evaluation.tokenization import choose_tokenization

    written, wanted = check_texts(translations, "translations"), check_references(references)
    if not written or len(written) != len(wanted):
        what = f"{len(written)} translations and {len(wanted)} references"
        raise UserError(what, remedy="give lists, with one reference or more for each translation")
    given = None if sources is None else check_texts(sources, "sources")
    if given is not None and len(given) != len(written):
        what = f"{len(written)} translations and {len(given)} sources"
        raise UserError(what, remedy="give a list with one source for each translation")
    names = check_texts(metrics, "metrics")
    check_metrics(names, "metrics")
    if empty := [place for place, each in enumerate(wanted) if not each]:
        raise UserError("has no reference", where=f"references[{empty[0]}]", remedy="give one or more")
    tokenization = choose_tokenization(wanted, tokenizer)
    return scores(written, wanted, lowercase, names or NAMES, tokenization, given)


class Training:
    """A run that trains while it is iterated over, one optimizer step per item.

    The iteration ends with the test of the best checkpoint. If you leave the iteration early, `train(folder,
    resume=True)` resumes from the last checkpoint.
    """

    def __init__(
        self,
        recipe: TrainRecipe,
        folder: Path,
        begin: "Callable[[Console], Generator[StepResult, None, Path]]",
        quiet: bool,
    ) -> None:
        self.recipe, self.folder = recipe, folder
        self._begin, self._quiet = begin, quiet

    def __repr__(self) -> str:
        return f"<training {self.folder}, {self.recipe.training.updates:,} steps>"

    def __iter__(self) -> "Iterator[StepResult]":
        """Train, and yield the result of each optimizer step."""
        from rich.console import Console

        from s2s.training.device import setup_process

        setup_process(self.recipe.device)
        with python_wording():
            yield from self._begin(Console(quiet=self._quiet))


@python_wording()
def train(
    recipe: str | Path | TrainRecipe,
    overrides: Overrides | None = None,
    overwrite: bool = False,
    resume: bool = False,
    quiet: bool = True,
) -> Training:
    """Prepare a training run, which starts when the returned object is iterated over.

    Nothing is written before the iteration starts.

    Args:
        recipe: As for `read_recipe`, or the recipe that it returned. With `resume`, the folder of a run.
        overrides: As for `read_recipe`; with `resume`, the settings that `s2s train --resume` may change.
        overwrite: Replace an existing run in the same folder.
        resume: Resume the run in the folder `recipe`.
        quiet: Print nothing.

    Returns:
        An iterable over the optimizer steps.

    Raises:
        UserError: The recipe has mistakes, its run exists already, or the run to resume does not exist.

    Example:
        >>> import s2s
        >>> training = s2s.train("translate", {"training.updates": 500}, overwrite=True)
        >>> for step in training:  # doctest: +SKIP
        ...     print(step.update, step.loss)
    """
    if isinstance(recipe, TrainRecipe):
        if overrides or resume:
            raise UserError(
                "overrides and resume do not apply to a recipe object", remedy="give overrides to s2s.read_recipe"
            )
        asked = recipe
    elif resume:
        asked = check_resumable(check_path("recipe", recipe), _words(overrides))
    else:
        asked = read_recipe(recipe, overrides)
    if not resume:
        check_free(asked, overwrite)
    going_on = Path(cast("str | Path", recipe)) if resume else None

    def begin(console: "Console") -> "Generator[StepResult, None, Path]":
        """Import torch and start the run."""
        from s2s.run.training import run_training

        return run_training(asked, console, overwrite, None, going_on, _words(overrides) if resume else ())

    return Training(asked, going_on or run_dir(asked), begin, quiet)


@reword_methods
class Comparison:
    """A comparison of models and its folder, either existing or `planned`.

    Attributes:
        folder: The folder with the plan, the trials and the report.

    Example:
        >>> import s2s
        >>> s2s.Comparison("runs/compare-lstm-transformer").table()  # doctest: +SKIP
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = check_path("folder", folder)
        self._planned: "Planned | None" = None

    def __repr__(self) -> str:
        return f"<comparison {self.folder}>"

    # Models are words of the command line, too, and the command has an option for each task's recipe.
    @classmethod
    @python_wording(PYTHON_WORDS | {"command line": "arguments", "--task": "recipe"})
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
        """Plan a comparison. Nothing is measured or written before `run`.

        Args:
            models: The models, as for `compare`.
            recipe: Recipe of the task, as for `compare`.
            overrides: Settings of the task or of a model, as for `compare`.
            profile: Profile, which selects the questions and their size.
            seeds: Number of seeds; None: set by the profile.
            experiments: Experiments to run; empty: those of the profile.
            folder: Folder of the comparison; None: `runs/compare-MODEL-MODEL`.
            match: Quantity to make equal, `parameters` or `time`; None: parameters.

        Returns:
            The planned comparison.

        Raises:
            UserError: A model or an experiment is unknown, or a setting is wrong.
        """
        # The command line and the API share one validation.
        from s2s.comparison.request import Order, order

        path = None if recipe is None else check_path("recipe", recipe)
        classes = path is not None and read_recipe(path).task == "classification"
        place = None if folder is None else check_path("folder", folder)
        task, recipe_of = (path, None) if classes else (None, path)
        words = (*check_texts(models, "models"), *_words(overrides))
        if seeds is not None:
            check_integer("seeds", seeds)
        for name, value in (("profile", profile), ("match", match)):
            if value is not None:
                check_text(value, name)
        names = tuple(check_texts(experiments, "experiments"))
        asked = Order(words, profile, seeds, match, names, recipe_of, place, task)
        planned = order(asked)
        found = cls(planned.folder)
        found._planned = planned
        return found

    def run(self, quiet: bool = True, cluster: str | None = None) -> "Comparison":
        """Run all trials that have no result yet, and write the report.

        Worker processes import the calling program: a script needs `if __name__ == "__main__":` around its code, a
        notebook does not.

        Args:
            quiet: Print nothing.
            cluster: Address of a Ray cluster that runs the trials: `auto`, `HOST:PORT` or `ray://HOST`. None: worker
                processes on this machine.

        Returns:
            This comparison.

        Raises:
            UserError: The folder has no comparison or another one, the cluster cannot be used, or some trials allow no
                conclusion (the report names them, too).
        """
        from s2s.comparison.request import check_cluster

        check_cluster(cluster)
        # Loading torch changes the CPU affinity.
        with cpu_affinity.save_affinity():
            from rich.console import Console

            from s2s.comparison.cluster import Cluster
            from s2s.comparison.engine import check_concluded, resume
            from s2s.comparison.setup import create

            with Cluster(cluster) if cluster else nullcontext() as connected:
                if asked := self._planned:
                    create(asked.folder, asked.base, asked.summary)
                    self._planned = None
                resume(self.folder, Console(quiet=quiet), connected)
        self.report()
        check_concluded(self.folder)
        return self

    def table(self) -> "pandas.DataFrame":
        """Return the results so far as a table.

        Returns:
            One row per table row and model, with value, confidence interval and verdict.

        Raises:
            UserError: The folder has no comparison, or one of its files is damaged.
        """
        import pandas

        from s2s.comparison.report.drawing import kept_comparison
        from s2s.comparison.report.table import HEAD, matrix, table_rows

        summary, models, results = kept_comparison(self.folder)
        return pandas.DataFrame(list(table_rows(matrix(summary, models, results))), columns=list(HEAD))

    def claims(self) -> "pandas.DataFrame":
        """Return the claims that the results so far decide, as in `claims.csv`.

        Returns:
            One row per claim, with its number, sentence, measured numbers, verdict, evidence and command; none if no
            claim can be decided, for the reasons in the report.

        Raises:
            UserError: The folder has no comparison, or one of its files is damaged.
        """
        import pandas

        from s2s.comparison.report.claims import HEAD, claim_rows, csv_rows
        from s2s.comparison.report.drawing import kept_comparison

        summary, models, results = kept_comparison(self.folder)
        rows = csv_rows(claim_rows(models, results), summary.command)
        return pandas.DataFrame(list(rows), columns=list(HEAD)).set_index("number")

    def _repr_html_(self) -> str:
        return self.claims()[["claim", "measured", "verdict"]].to_html()

    def report(self) -> Path:
        """Write the HTML report of the results so far.

        Returns:
            The path of the report.
        """
        from s2s.comparison.report.drawing import draw

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
    """Compare models as `s2s compare` does, and return when all trials are done.

    Args:
        models: Two or more models, as listed by `s2s recipe models`, or with settings: `transformer:norm=post`.
        recipe: Recipe of the task, translation or classification; None: the task of the profile.
        overrides: Settings of the task by `section.key`, or of a model, such as `lstm.bidirectional`.
        profile: `quick`, `lecture` or `definitive`; for translation.
        seeds: Number of seeds; None: set by the profile.
        experiments: Experiments to run; empty: those of the profile.
        folder: Folder of the comparison; None: `runs/compare-MODEL-MODEL`.
        quiet: Print nothing.

    Returns:
        The finished comparison.

    Raises:
        UserError: A model or an experiment is unknown, a setting is wrong, or the folder is in use.

    Example:
        >>> import s2s
        >>> found = s2s.compare(["lstm", "transformer"], profile="quick")  # doctest: +SKIP
        >>> found.table()  # doctest: +SKIP
    """
    return Comparison.planned(models, recipe, overrides, profile, seeds, experiments, folder).run(quiet)


def _words(overrides: Overrides | None) -> tuple[str, ...]:
    """Format overrides as command-line arguments; YAML reads all JSON values."""

    def _plain(value: object) -> object:
        # NumPy's numbers have a Python number.
        item = getattr(value, "item", None)
        return item() if callable(item) else str(value)

    if overrides is not None and not isinstance(overrides, Mapping):
        what = f"{overrides!r:.60} is no dictionary"
        raise UserError(what, where="overrides", remedy="give values by key, as in {'decoding.beam': 5}")
    # ASCII, for YAML folds some line ends of Unicode.
    return tuple(f"{key}={json.dumps(value, default=_plain)}" for key, value in (overrides or {}).items())
