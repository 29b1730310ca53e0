"""What padding costs: one update of each way of making batches in turn.

    python -m benchmarks.padding recipes/imdb_lab.yaml data.root=DIR

The recipe's classifier learns from the same texts in `buckets` of similar length, in batches of any texts, and with all
texts padded to `batches.max_length`, as simple programs do. All take turns, so that a noisy machine is noisy for all;
what is compared is texts a second, over all updates. The first updates, which have the longest texts, are left out.
"""

from functools import partial
from pathlib import Path

from benchmarks.contest import in_turns
from benchmarks.keeping import asked
from s2s.comparison.runs import prepared_texts
from s2s.comparison.tasks import trainer_of
from s2s.recipe.reading import recipe_path
from s2s.run.tasks import read
from s2s.tasks.classification.recipe import ClassificationRecipe
from s2s.training.device import select_device, setup_process

WAYS = ("buckets", "batch", "max_length")
WARM = 3


def main() -> None:
    """Prints a line for each way."""
    parser = asked(__doc__)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--updates", type=int, default=40)
    given = parser.parse_args()
    recipe = read(recipe_path(given.recipe), given.overrides)
    if not isinstance(recipe, ClassificationRecipe):
        parser.error(f"{given.recipe} is a recipe of task {recipe.task}, not classification")
    corpus = prepared_texts(recipe).corpus
    recipe = recipe.model_copy(update={"data": recipe.data.model_copy(update={"classes": corpus.train.names})})
    setup_process(recipe.device)
    device_context = select_device(recipe.device)
    trainers = {}
    for way in WAYS:
        batches = recipe.batches.model_copy(update={"padding": way})
        trainers[way] = trainer_of(recipe.model_copy(update={"batches": batches}), 1, device_context)
    updates = {way: partial(next, trainer.updates(WARM + given.updates)) for way, trainer in trainers.items()}
    made = in_turns(updates, given.updates, WARM)
    paces = {way: sum(u.count for u in done) / sum(u.seconds for u in done) for way, done in made.items()}
    print(f"{device_context}, {given.updates} updates each")
    for way, trainer in trainers.items():
        pace, waste = paces[way], trainer.examples.padding_share(recipe.seeds.data)
        print(
            f"{way:10} {pace:7.1f} texts/s, {len(trainer.examples) / pace:6.0f} s an epoch, {100 * waste:4.1f} % "
            f"padding, × {pace / paces['max_length']:.2f}"
        )


if __name__ == "__main__":
    main()
