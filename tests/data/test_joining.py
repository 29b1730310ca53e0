"""`data.join` makes longer training examples of consecutive pairs."""

from pathlib import Path

import datasets
import pytest

from s2s.data.pairs import load, pairs
from s2s.errors import UserError
from s2s.recipe.pairs import FilterSettings
from s2s.run.tasks import read
from s2s.tasks.translation.diagnosis import inspected
from s2s.tasks.translation.prepared import join_short_pairs, prepare
from s2s.tasks.translation.recipe import DataSettings

RECIPE = Path(__file__).parents[2] / "recipes" / "compare.yaml"
ROWS = [(f"a{n} b", f"x{n} y z") for n in range(200)]
PAIRS = datasets.Dataset.from_dict({"source": [s for s, _ in ROWS], "target": [t for _, t in ROWS]})


def _counts(examples) -> list[int]:
    return [len(source.split()) // 2 for source, _ in pairs(examples)]


def test_join_every_pair_is_in_one_example_in_the_order_of_the_corpus():
    examples = join_short_pairs(PAIRS, DataSettings(join=4))
    assert " ".join(source for source, _ in pairs(examples)) == " ".join(source for source, _ in ROWS)
    assert " ".join(target for _, target in pairs(examples)) == " ".join(target for _, target in ROWS)
    assert all(3 * source.count("a") == len(target.split()) for source, target in pairs(examples))
    assert set(_counts(examples)) == {1, 2, 3, 4}


def test_data_seed_decides_how_many_are_joined_and_one_joins_nothing():
    counts = [_counts(join_short_pairs(PAIRS, DataSettings(join=3, seed=seed))) for seed in (1, 1, 2)]
    assert counts[0] == counts[1] != counts[2]
    assert join_short_pairs(PAIRS, DataSettings()) is PAIRS


def test_join_no_side_becomes_longer_than_the_filter_allows():
    examples = join_short_pairs(PAIRS, DataSettings(join=9, filters=FilterSettings(max_words=7)))
    assert set(_counts(examples)) == {1, 2}  # a third pair would make nine words of the target
    assert sum(_counts(examples)) == len(ROWS)


def test_join_joining_changes_what_is_learned_from_and_nothing_else():
    made = {}
    for join in (1, 3):
        data = {"train": 60, "validation": 5, "test": 7, "join": join}
        said = []
        words = [f"data.{key}={value}" for key, value in data.items()]
        recipe = read(RECIPE, [*words, "tokenizer.size=300"])
        made[join] = prepare(recipe, None, said.append)
        assert (f"joined to {len(made[join].train)} training examples" in said[-1]) == (join == 3)
    one, three = made[1], made[3]
    assert len(one.train) == 60 > len(three.train)
    for name in ("validation", "test"):
        assert list(pairs(one.corpus.splits()[name])) == list(pairs(three.corpus.splits()[name]))
    hashes = [each.hashes() for each in (one, three)]
    assert hashes[0]["training_data"] != hashes[1]["training_data"]
    assert hashes[0]["source_tokenizer"] == hashes[1]["source_tokenizer"]


def test_join_looking_through_a_corpus_counts_what_is_joined():
    words = ["data.train=50", "data.validation=5", "data.test=5"]
    three, one = (read(RECIPE, [*words, f"data.join={join}"]) for join in (3, 1))
    kept = load(three.data).train
    assert f"50 pairs joined to {len(join_short_pairs(kept, three.data))} training examples" in inspected(three)
    assert "joined" not in inspected(one)


@pytest.mark.parametrize("nonsense", [0, -1, 1.5, "many", 1_001])
def test_join_nonsense_is_refused_in_one_message(nonsense):
    with pytest.raises(UserError, match=r"data\.join"):
        read(RECIPE, [f"data.join={nonsense}"])
