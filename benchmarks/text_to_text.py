"""One model for five tasks against a model for each, at equal updates and at equal parameters together.

    python -m benchmarks.text_to_text --output docs/results/text_to_text.json runs/compared [section.key=value]...

All arms have the pieces that the mixture's texts gave, so that they differ in what they learn and in their widths
alone. Runs that are there already are not trained again, so what was interrupted goes on.
"""

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.keeping import ROOT, described, read, write
from s2s.data.tokenizers import Tokenizer
from s2s.models.base import count_parameters
from s2s.recipe.reading import recipe_path
from s2s.run.inference import load_tokenizers
from s2s.run.tasks import read as read_recipe
from s2s.run.tasks import task_of
from s2s.run.training import train
from s2s.tasks.seq2seq import build_model

_RECIPE = ROOT / "recipes" / "text_to_text.yaml"


def measured(folder: Path, recipe: Any, tokenizers: tuple[Tokenizer, ...] = ()) -> dict[str, Any]:
    """Trains a recipe into a folder, unless that was done, and gives the scores of its test set."""
    kept = folder / "evaluation-test.json"
    if not kept.exists():
        recipe = recipe.model_copy(update={"run": recipe.run.model_copy(update={"dir": str(folder)})})
        train(recipe, Console(), True, task_of(recipe).prepare(recipe, tokenizers, print))
    found = read(kept)
    scores = {task["task"]: {"metric": task["metric"], "value": task["value"]} for task in found["tasks"]}
    return {key: described(folder)[key] for key in ("minutes", "parameters")} | {"tasks": scores}


def alone(recipe: Any, name: str, width: int) -> Any:
    """The recipe of one task alone, at a width."""
    data = recipe.data.model_copy(update={"corpora": {name: recipe.data.corpora[name]}})
    sizes = {"width": width, "feedforward": 4 * width}
    return recipe.model_copy(update={"data": data, "model": recipe.model.model_copy(update=sizes)})


def narrow(recipe: Any, tasks: list[str]) -> int:
    """The largest width at which a model for each task has, all together, at most the parameters of one for all."""

    def count(one: Any) -> int:
        size = one.tokenizer.size
        return count_parameters(build_model(one, size, size))

    whole, heads = count(recipe), recipe.model.heads
    widths = range(2 * heads, recipe.model.width, 2 * heads)
    return max(w for w in widths if len(tasks) * count(alone(recipe, tasks[0], w)) <= whole)


def table(found: dict[str, Any]) -> str:
    """Rows of tasks, columns of arms, as Markdown."""
    arms = list(found["arms"])
    lines = [f"| task | metric | {' | '.join(arms)} |", "|---|---|" + "---|" * len(arms)]
    for name, score in found["arms"][arms[0]]["tasks"].items():
        values = (f"{found['arms'][arm]['tasks'][name]['value']:.1f}" for arm in arms)
        lines.append(f"| `{name}` | {score['metric']} | {' | '.join(values)} |")
    counts = (f"{found['arms'][arm]['parameters']:,}" for arm in arms)
    return "\n".join([*lines, f"| parameters | | {' | '.join(counts)} |"])


def main() -> None:
    """Trains all arms, and writes what they scored."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    recipe: Any = read_recipe(recipe_path(_RECIPE), given.overrides)
    tasks, model = list(recipe.data.corpora), recipe.model
    arms = {"one model": measured(given.folder / "mixture", recipe)}
    tokenizers = load_tokenizers(given.folder / "mixture", recipe)
    for arm, width in (
        ("one a task, equal updates", model.width),
        ("one a task, equal parameters", narrow(recipe, tasks)),
    ):
        runs = [measured(given.folder / f"{name}-{width}", alone(recipe, name, width), tokenizers) for name in tasks]
        scores = {name: score for run in runs for name, score in run["tasks"].items()}
        parameters = sum(run["parameters"] for run in runs)
        arms[arm] = {"parameters": parameters, "minutes": sum(run["minutes"] for run in runs), "tasks": scores}
    found = {"recipe": recipe.model_dump(mode="json"), "arms": arms}
    write(given.output, found)
    print(table(found))


if __name__ == "__main__":
    main()
