"""What padding costs: one update of each way of making batches in turn.

    python benchmarks/padding.py recipes/imdb_lab.yaml data.root=DIR

The recipe's classifier learns from the same texts in `buckets` of similar length, in batches of any texts, and with all
texts padded to `batches.max_length`, as simple programs do. All take turns, so that a noisy machine is noisy for all;
what is compared is texts a second, over all updates. The first updates, which have the longest texts, are left out.
"""

import argparse
import time
from pathlib import Path

from s2s.experiments.disciplines import DISCIPLINES
from s2s.experiments.whole_runs import prepared_texts
from s2s.recipe.reading import recipe_path
from s2s.run.tasks import read
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.training.devices import choose, prepare_process

WAYS = ("buckets", "batch", "max_length")
WARM = 3


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--updates", type=int, default=40)
    asked = parser.parse_args()
    recipe = read(recipe_path(asked.recipe), asked.overrides)
    if not isinstance(recipe, ClassificationRecipe):
        parser.error(f"{asked.recipe} is a recipe of task {recipe.task}, not classification")
    corpus = prepared_texts(recipe).corpus
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"classes": corpus.train.names})})
    prepare_process(recipe.device)
    computer = choose(recipe.device)
    trainers = {}
    for way in WAYS:
        batches = recipe.batches.model_copy(update={"padding": way})
        trainers[way] = DISCIPLINES["classification"].trainer(
            recipe.model_copy(update={"batches": batches}), 1, computer
        )
    updates = {way: trainer.updates(WARM + asked.updates) for way, trainer in trainers.items()}
    seconds, texts = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0)
    for number in range(WARM + asked.updates):
        for way in WAYS:
            began = time.perf_counter()
            update = next(updates[way])
            if number >= WARM:
                seconds[way] += time.perf_counter() - began
                texts[way] += update.count
    print(f"{computer}, {asked.updates} updates each")
    slowest = texts["max_length"] / seconds["max_length"]
    for way, trainer in trainers.items():
        pace, waste = texts[way] / seconds[way], trainer.examples.padding_share(recipe.seeds.data)
        epoch = len(trainer.examples) / pace
        print(
            f"{way:10} {pace:7.1f} texts/s, {epoch:6.0f} s an epoch, {100 * waste:4.1f} % padding, "
            f"× {pace / slowest:.2f}"
        )


if __name__ == "__main__":
    main()
