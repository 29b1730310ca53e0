"""Classification of lines (`s2s classify`), with warnings about truncated texts."""

from collections.abc import Iterable, Iterator

from s2s.decoding.generate import one_line
from s2s.errors import Refuse, UserError
from s2s.models.base import Classifier
from s2s.recipe.labelled import LabelledRecipe
from s2s.tasks.base import LoadedModel, PrintFn
from s2s.tasks.classification_base import ClassificationTask, LabelledData, class_probabilities


def truncation_warning(cut: int, texts: int, max_length: int) -> str:
    """Return a warning about truncated texts.

    Args:
        cut: Number of truncated texts.
        max_length: Limit in tokens, `batches.max_length`, which includes special tokens.
    """
    return (
        f"{cut:,} of {texts:,} texts cut after {max_length:,} tokens (batches.max_length): "
        "shorten them, or train with a higher limit"
    )


def classify_lines(
    task: ClassificationTask[LabelledRecipe, LabelledData],
    run: LoadedModel[LabelledRecipe, Classifier],
    chunks: Iterable[list[str]],
    probabilities: bool,
    refuse: Refuse,
    at_once: bool,
    tell: PrintFn,
) -> Iterator[str]:
    """Classify lines, in order; empty lines stay empty.

    Args:
        chunks: Lines that are classified together.
        probabilities: Append the probability of each class, as `TAB name=0.1234`.
        refuse: Receives the number of each line that cannot be read, from 0, and the error; the output of such a line
            is empty.
        at_once: Report truncated texts after each chunk, for an interactive session; otherwise once, at the end.

    Yields:
        The class of each line.
    """
    limit = run.recipe.batches.model_dump().get("max_length", 0)
    classes, before, texts, cut = [one_line(name) for name in run.recipe.data.classes or ()], 0, 0, 0
    for chunk in chunks:
        places = [place for place, text in enumerate(chunk) if text.strip()]
        wrong: dict[int, UserError] = {}
        examples = task.parse_inputs(run, [chunk[place] for place in places], wrong.__setitem__)
        rows = class_probabilities(run.model, examples).tolist()
        found = {place: rows[number] for number, place in enumerate(places) if number not in wrong}
        for number, error in wrong.items():
            refuse(before + places[number], error)
        before, texts, cut = before + len(chunk), texts + len(found), cut + int(examples.is_truncated.sum())
        if cut and at_once:
            tell(truncation_warning(cut, texts, limit))
            texts, cut = 0, 0
        for place in range(len(chunk)):
            if place not in found:
                yield ""
                continue
            row = found[place]
            shares = [f"{name}={share:.4f}" for name, share in zip(classes, row, strict=True)] if probabilities else []
            yield "\t".join([classes[row.index(max(row))], *shares])
    if cut:
        tell(truncation_warning(cut, texts, limit))
