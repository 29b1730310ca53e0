"""CIDEr-D compared with its formula and its authors' program."""

import math

import numpy as np
import pytest

from s2s.evaluation.cider import Cider
from s2s.evaluation.metrics import by_place, metrics, score, scores
from s2s.evaluation.significance import compare

CAPTIONS = [
    "a man rides a brown horse on the beach",
    "two dogs play in the snow",
    "a child eats",
    "",
    "the the the the the the",
    "a red bus in the street",
]
REFERENCES = [
    ["a man riding a horse on the beach", "a person rides a brown horse near the sea"],
    ["two dogs playing in the snow", "dogs run in deep snow", "two dogs play in the snow"],
    ["a small child eats an apple"],
    ["an empty road", "a road"],
    ["the cat sits on the mat", "a cat on a mat", "the the cat"],
    ["a red bus drives down the street", "a bus in a street"],
]
# by pycocoevalcap 1.2, CiderScorer, on these sentences as they stand
PUBLISHED = [3.8007371204262332, 5.130402493373377, 2.191295132010463, 0.0, 0.271517119435002, 3.1562473062977237]


def _cider(captions, references) -> list[float]:
    metric = metrics(names=("cider",))["cider"]
    return [found for found, _ in metric._extract_corpus_statistics(captions, by_place(references))]


def test_cider_authors_program_gives_the_same_numbers():
    assert _cider(CAPTIONS, REFERENCES) == pytest.approx(PUBLISHED)
    assert score(CAPTIONS, REFERENCES, names=("cider",))["cider"] == pytest.approx(100 * np.mean(PUBLISHED))


def _by_the_formula(caption: str, own: list[str], references: list[list[str]]) -> float:
    """Equations 1 to 3 of the paper with the changes of its section 7, over the whole vocabulary of n-grams."""

    def cut(sentence: str, n: int) -> list[tuple[str, ...]]:
        words = sentence.split()
        return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]

    total = 0.0
    for n in range(1, 5):
        vocabulary = sorted({g for several in [*references, [caption]] for text in several for g in cut(text, n)})
        idf = []
        for gram in vocabulary:
            images = sum(any(gram in cut(text, n) for text in several) for several in references)
            idf.append(math.log(len(references) / max(1, images)))
        c = np.array([cut(caption, n).count(gram) for gram in vocabulary]) * idf
        for reference in own:
            s = np.array([cut(reference, n).count(gram) for gram in vocabulary]) * idf
            sizes = np.linalg.norm(c) * np.linalg.norm(s)
            apart = len(cut(caption, 2)) - len(cut(reference, 2))
            total += (np.minimum(c, s) @ s / sizes if sizes else 0) * math.exp(-(apart**2) / 72) / len(own) / 4
    return 10 * total


def test_cider_is_the_published_formula():
    naive = [_by_the_formula(c, own, REFERENCES) for c, own in zip(CAPTIONS, REFERENCES, strict=True)]
    assert _cider(CAPTIONS, REFERENCES) == pytest.approx(naive)


def test_cider_equal_sentences_have_a_thousand_and_case_and_punctuation_do_not_count():
    sentences = ["one dog runs quickly home", "two cats sleep all day", "three birds sing at night"]
    assert score(sentences, sentences, names=("cider",))["cider"] == pytest.approx(1000)
    loud = [f"{sentence.capitalize()} !" for sentence in sentences]
    assert score(loud, sentences, names=("cider",))["cider"] == pytest.approx(1000)
    # what every image is said to be says nothing
    assert score(["a photo"] * 3, [["a photo"]] * 3, names=("cider",))["cider"] == 0


def test_cider_vowel_signs_and_accents_are_part_of_words():
    hindi = ["काम की बात", "किताब नई है", "सब ठीक"]
    others = ["काम का बात", "कीताब नई हैं", "सब ठीक"]
    alike, unlike = (score(texts, hindi, names=("cider",))["cider"] for texts in (hindi, others))
    assert unlike < 0.7 * alike
    decomposed = ["cafe\u0301 noir", "un the\u0301 vert", "de l'eau"]
    assert Cider()._preprocess_segment(decomposed[0]) == decomposed[0]
    # The variation selector of an emoji belongs to no word.
    assert Cider()._preprocess_segment("I \u2764\ufe0f it") == "i it"
    assert Cider(unspaced=True)._preprocess_segment("น้ำดี") == "น ้ ำ ด ี"


def test_cider_several_references_are_all_looked_at_and_one_is_as_before():
    names = ("bleu", "chrf", "cider", "exact", "wer")
    found = {name: one.value for name, one in scores(CAPTIONS, REFERENCES, names=names).items()}
    assert found == pytest.approx(score(CAPTIONS, REFERENCES, names=names))
    # the second dog's third reference alone is exact
    assert found["exact"] == pytest.approx(100 / 6)
    edits = scores(["a b c"], [["x y z", "a b d c"]], names=("wer",))["wer"].value
    assert edits == pytest.approx(25)
    single = [several[0] for several in REFERENCES]
    assert score(CAPTIONS, single, names=names) == score(CAPTIONS, [[each] for each in single], names=names)


def test_cider_runs_are_compared_by_it():
    better = [several[0] for several in REFERENCES]
    tested = compare({"one": CAPTIONS, "other": better}, REFERENCES, names=("cider", "exact"))
    assert [(each.system, each.metric) for each in tested] == [
        ("one", "cider"),
        ("other", "cider"),
        ("one", "exact"),
        ("other", "exact"),
    ]
    assert tested[0].value == pytest.approx(100 * np.mean(PUBLISHED))
    assert tested[1].p_value is not None
    assert tested[1].p_value < 0.1
