"""What commonly spoils a mixture of corpora, found before training: in each corpus, and between them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import datasets

from s2s.data import inspection as look
from s2s.data.mixing import told
from s2s.data.pair_inspection import Inspection, blocks, inspect
from s2s.data.pairs import pairs
from s2s.data.piece_inspection import Cutting, cutting
from s2s.data.sources import Corpus
from s2s.data.tokenizers import train
from s2s.tasks.text_to_text.data import Learned, Mixture, MixtureSource, learned_from
from s2s.tasks.text_to_text.recipe import CorpusSettings, TextToTextRecipe

# a class with so many times fewer answers than the most frequent one is easily never given
_IMBALANCE = 10


def inspected(recipe: TextToTextRecipe) -> str:
    """What a recipe's corpora hold, and what is suspicious, as text."""
    corpora, corpus, tokenizer = recipe.data.corpora, MixtureSource(recipe.data).load(), recipe.tokenizer
    shown, advice, learned = [], [], learned_from(recipe.data.corpora, corpus)
    for name, settings in corpora.items():
        found = inspect(_alone(corpus, name), settings, tokenizer.normalization)
        head, *others = blocks(found) if settings.objective == "pairs" else _of_texts(found)
        shown += [[f"── {name}", *head], *others]
        advice += [f"{name}: {words}" for words in _told(found, settings)]
        if settings.answers:
            table, more = _answers(corpus, name, settings.answers)
            shown.append(table)
            advice += [f"{name}: {words}" for words in more]
    texts = {split: list(_read_and_written(part, corpora)) for split, part in corpus.parts().items()}
    cut = cutting(texts, lambda: train(texts["train"], tokenizer, "text"), recipe.batches.max_length)
    advice += [*_confusable(corpora), *cut.advice()]
    return look.findings([*shown, _together(recipe, learned, cut)], advice)


def _alone(corpus: Corpus[Mixture], name: str) -> Corpus[datasets.Dataset]:
    test = corpus.test.parts.get(name) if corpus.test else None
    return Corpus(corpus.train.parts[name], corpus.validation.parts[name], test)


def _of_texts(found: Inspection) -> list[list[str]]:
    """Of texts that spans are taken out of, both sides are the same one."""
    sizes = {name: split.source for name, split in found.splits.items()}
    rows = {"texts": [split.pairs for split in found.splits.values()]}
    rows["words"] = [side.words for side in sizes.values()]
    rows["words, different"] = [side.types for side in sizes.values()]
    rows["repeated texts"] = [len(split.duplicates) for split in found.splits.values()]
    spots = [f"  {row:>9,}  {look.visible(text)}" for row, text, _ in found.spots]
    return [look.table(sizes, rows), [f"train: {len(spots)} texts drawn at random", *spots]]


def _told(found: Inspection, settings: CorpusSettings) -> list[str]:
    """The advice of a corpus, but for what is meant: answers are few words, and of a text both sides are the same."""
    beside: tuple[str, ...] = ("hardly go together",) if settings.answers else ()
    beside += ("just the source again",) if settings.objective == "span-corruption" else ()
    return [words for words in found.advice if not any(part in words for part in beside)]


def _answers(corpus: Corpus[Mixture], name: str, answers: Sequence[str]) -> tuple[list[str], list[str]]:
    """How often each answer is right, and what to say of that."""
    said = {
        split: Counter(target.strip() for _, target in pairs(part.parts[name]))
        for split, part in corpus.parts().items()
        if name in part.parts
    }
    table = ["answers", *look.table(said, {answer: [count[answer] for count in said.values()] for answer in answers})]
    train = said["train"]
    most, advice = max(train[answer] for answer in answers), []
    for answer in answers:
        if train[answer] * _IMBALANCE < most:
            advice.append(f"{answer} is {train[answer]:,} times the answer, another one {most:,} times: see macro-F1")
    return table, advice


def _read_and_written(part: Mixture, corpora: Mapping[str, CorpusSettings]) -> Iterator[str]:
    for name, each in part.parts.items():
        yield from (corpora[name].prefix + source for source, _ in pairs(each))
        if corpora[name].objective == "pairs":
            yield from (target for _, target in pairs(each))


def _confusable(corpora: Mapping[str, CorpusSettings]) -> Iterator[str]:
    """Tasks that a model cannot tell apart."""
    prefixes = Counter(each.prefix for each in corpora.values() if each.objective == "pairs")
    for prefix, count in prefixes.items():
        if count > 1:
            names = ", ".join(name for name, each in corpora.items() if each.prefix == prefix)
            yield f"{names} have the same prefix {prefix!r}: nothing says which task it is"


def _together(recipe: TextToTextRecipe, learned: Mapping[str, Learned], cut: Cutting) -> list[str]:
    """How the corpora are mixed, and how all texts are cut, prefixes included."""
    lines, kept = [f"── together, mixing {recipe.data.mixing}"], [len(each.kept) for each in learned.values()]
    if any(kept):
        lines += told(learned, kept, recipe.data.mixing, recipe.data.weights)
    lines += [f"  {name}: {each.left}" for name, each in learned.items() if each.elsewhere]
    return [*lines, *(look.table(cut.splits, cut.rows()) if cut.splits else [])]
