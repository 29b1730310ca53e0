"""What commonly spoils a parallel corpus, found before training."""

from s2s.data.filters import filter_training
from s2s.data.pair_inspection import inspect, render
from s2s.data.pairs import load
from s2s.tasks.translation.joining import joined, told
from s2s.tasks.translation.recipe import Recipe


def inspected(recipe: Recipe) -> str:
    """What a recipe's corpus holds, and what is suspicious, as text."""
    data, corpus = recipe.data, load(recipe.data)
    found = inspect(corpus, data, recipe.tokenizer.of("target").normalization)
    kept, _ = filter_training(corpus.train, data.filters)
    if data.join == 1 or not len(kept):
        return render(found)
    return render(found, [["what data.join does", f"  {told(joined(kept, data), len(kept))}"]])
