"""Where the corpora of a mixture come from, and how they become pieces."""

import hashlib
import itertools
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int

from s2s.data.corruption import CorruptedText
from s2s.data.filters import FilterReport, filter_training
from s2s.data.mixing import FixedPairs, TokenizedPairSource
from s2s.data.pairs import PairSource, pairs, prefixed, with_prefix
from s2s.data.sources import Corpus, Source, digest_of_arrays
from s2s.data.tokenized import RaggedArray, TokenizedDataset, encode_corpus, encode_texts
from s2s.data.tokenizers import Tokenizer, train
from s2s.errors import UserError
from s2s.tasks.seq2seq import check_prefixes
from s2s.tasks.text_to_text.answers import check_apart
from s2s.tasks.text_to_text.recipe import CorpusSettings, MixtureSettings, TextToTextRecipe

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True)
class Mixture:
    """One split of several corpora, by their names: pairs as text, without prefixes, in `source` and `target`."""

    parts: Mapping[str, "datasets.Dataset"]

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Mixture":
        """The chosen examples, counted through all corpora, in the order asked for; no corpus without any."""
        ends = np.cumsum([0, *map(len, self.parts.values())])
        spans = zip(self.parts.items(), itertools.pairwise(ends.tolist()), strict=True)
        rows = np.asarray(indices)
        chosen = {name: (part, rows[(rows >= a) & (rows < b)] - a) for (name, part), (a, b) in spans}
        return Mixture({name: part.select(some) for name, (part, some) in chosen.items() if len(some)})


class TaskSource(PairSource):
    """Pairs of one corpus; of a task with answers, each target is one of them."""

    settings: CorpusSettings

    def part(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        """As elsewhere.

        Raises:
            UserError: see `PairSource`; or a target is none of the answers. Filters drop empty ones of training.
        """
        found, answers = super().part(name, train), self.settings.answers
        if found is None or not answers:
            return found
        wanted = {*answers, ""} if name == "train" else {*answers}
        wrong = [row for row, (_, target) in enumerate(pairs(found)) if target.strip() not in wanted]
        if wrong:
            more = f", and {len(wrong) - 1:,} more targets" if wrong[1:] else ""
            said = found[wrong[0]]["target"][:60]
            what = f"the target is {said!r}, which is none of the answers {', '.join(answers)}{more}"
            raise UserError(what, self.place(name, wrong[0]), "add it to `answers`, or mend the row")
        return found

    def classes(self, part: "datasets.Dataset") -> Int[np.ndarray, " examples"]:
        """The answer of each pair, by number; one class without `answers`."""
        answers = {answer: number for number, answer in enumerate(self.settings.answers or ())}
        if not answers:
            return super().classes(part)
        return np.array([answers.get(target.strip(), -1) for _, target in pairs(part)], dtype=np.int64)


class MixtureSource(Source[Any, Mixture]):
    """The corpora of a mixture, each from where translation's pairs come from.

    What one holds out is not left in its own training data; see `learned_from` for that of the others.
    """

    settings: MixtureSettings
    inputs: ClassVar[str] = "sources"
    section: ClassVar[str] = "data.corpora.NAME"

    def sources(self) -> dict[str, TaskSource]:
        """Of each corpus; where spans are taken out, only the source is read."""
        found = {}
        for name, settings in self.settings.corpora.items():
            alone = {"target": settings.source} if settings.objective == "span-corruption" else {}
            found[name] = TaskSource(settings.model_copy(update=alone))
        return found

    def read(self, name: str, split: str | tuple[str, str], train: Mixture | None) -> Mixture:
        parts = {}
        for corpus, source in self.sources().items():
            with _of(corpus):
                part = source.part(name, train.parts[corpus] if train else None)
            if part is not None:
                parts[corpus] = part
        return Mixture(parts)

    def load(self) -> Corpus[Mixture]:
        parts: dict[str, dict[str, "datasets.Dataset"]] = {"train": {}, "validation": {}, "test": {}}
        for corpus, source in self.sources().items():
            with _of(corpus):
                for split, part in source.load().parts().items():
                    parts[split][corpus] = part
        test = Mixture(parts["test"]) if parts["test"] else None
        return Corpus(Mixture(parts["train"]), Mixture(parts["validation"]), test)

    def keys(self, part: Mixture) -> Iterable[Hashable]:
        return ((name, source) for name, each in part.parts.items() for source, _ in pairs(each))

    def keys_with_targets(self, part: Mixture) -> Iterable[Hashable]:
        return ((name, *pair) for name, each in part.parts.items() for pair in pairs(each))

    def held_out(self, name: str, part: Mixture) -> dict[str, str]:
        """Each corpus by itself: what others are tested on says nothing of what it holds out."""
        sources, found = self.sources(), {}
        for corpus, each in part.parts.items():
            found |= {f"{key}.{corpus}": digest for key, digest in sources[corpus].held_out(name, each).items()}
        return found

    def digest(self, part: Mixture) -> str:
        sources = self.sources()
        found = "\n".join(f"{name} {sources[name].digest(each)}" for name, each in part.parts.items())
        return hashlib.sha256(found.encode()).hexdigest()[:32]


@contextmanager
def _of(corpus: str) -> Iterator[None]:
    """Within it, a mistake is told with the corpus that it is in."""
    try:
        yield
    except UserError as error:
        what, where, remedy = (own_keys(text, corpus) for text in (error.what, error.where, error.remedy))
        raise UserError(f"{what} (data.corpora.{corpus})", where, remedy) from None


def own_keys(text: str, corpus: str) -> str:
    """A text for users in which keys of a recipe of one corpus are those of a corpus of a mixture."""
    return re.sub(r"(?<![\w./-])data\.(?=[a-z])(?!corpora\b)", f"data.corpora.{corpus}.", text)


@dataclass(frozen=True)
class TrainingMixture:
    """What is learned from of a corpus, what its filters dropped, and how many more examples others hold out."""

    kept: "datasets.Dataset"
    ledger: FilterReport
    elsewhere: int

    def __str__(self) -> str:
        return f"{self.ledger}\n{self.left}" if self.elsewhere else str(self.ledger)

    @property
    def left(self) -> str:
        """How many were left out, in words."""
        return f"{self.elsewhere:,} of its examples are held out by another corpus: left out"


def build_training_mixture(
    corpora: Mapping[str, CorpusSettings], corpus: Corpus[Mixture]
) -> dict[str, TrainingMixture]:
    """The filtered training examples of each corpus, without those that the validation or test set of another one has.

    Such an example reads a text that the other one reads or writes there, or writes one that is read there: a
    translation is held out in both directions. Different examples may well have the same target, such as tags.
    """
    scored = [part.parts for part in (corpus.validation, corpus.test) if part is not None]
    found = {}
    for name, part in corpus.train.parts.items():
        kept, ledger = filter_training(part, corpora[name].filters)
        held = [pair for parts in scored for other, each in parts.items() if other != name for pair in pairs(each)]
        read = {source for source, _ in held}
        known = read.union(target for _, target in held)
        # an answer is one of a few words, and no text
        written = set() if corpora[name].answers else read
        rows = [
            row for row, (source, target) in enumerate(pairs(kept)) if source not in known and target not in written
        ]
        elsewhere = len(kept) - len(rows)
        found[name] = TrainingMixture(kept.select(rows) if elsewhere else kept, ledger, elsewhere)
    return found


@dataclass(frozen=True)
class PreparedMixture:
    """Everything about the data that training needs: the filtered corpora as text, and as pieces, prefixes included."""

    corpus: Corpus[Mixture]
    tokenizer: Tokenizer
    train: dict[str, TokenizedPairSource]
    validation: dict[str, TokenizedPairSource]
    learned: tuple[TokenizedDataset | RaggedArray, ...]

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The only one."""
        return (self.tokenizer,)

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizer, whatever their files are called."""
        arrays = (array for each in self.learned for array in each.arrays())
        return {"training_data": digest_of_arrays(arrays), "tokenizer": self.tokenizer.digest}

    def source_pieces(self, corpora: Mapping[str, CorpusSettings]) -> Int[np.ndarray, " different"]:
        """The numbers of the pieces that occur in sources and prefixes; texts whose spans are taken out count whole."""
        # sources of pairs are cut with their prefix, texts without
        prefixes = [np.array(self.tokenizer.encode(each.prefix.rstrip()), np.int32) for each in corpora.values()]
        return np.unique(np.concatenate([*prefixes, *(each.source_token_ids() for each in self.learned)]))


def prepare(recipe: TextToTextRecipe, tokenizer: Tokenizer | None, print_fn: Callable[[str], None]) -> PreparedMixture:
    """Loads, filters and encodes all corpora, with the tokenizer of a run that is there, or one trained on all texts.

    Raises:
        UserError: see `MixtureSource`; or nothing is left of a corpus.
    """
    corpora = recipe.data.corpora
    corpus, kept = MixtureSource(recipe.data).load(), {}
    for name, learned in build_training_mixture(corpora, corpus).items():
        print_fn(f"{name}: {learned}")
        if not len(learned.kept):
            remedy = "loosen its filters, hold out fewer, or mend its files"
            raise UserError("no training pair is left", f"data.corpora.{name}", remedy)
        kept[name] = learned.kept
    corpus = Corpus(Mixture(kept), corpus.validation, corpus.test)
    tokenizer = tokenizer or train(read_and_written(corpora, kept), recipe.tokenizer, "text")
    check_prefixes({f"data.corpora.{name}": each.prefix for name, each in corpora.items()}, tokenizer)
    for name, each in corpora.items():
        check_apart(each.answers or (), tokenizer, f"data.corpora.{name}.answers")
    longest = recipe.batches.max_length
    made = {name: in_pieces(part, corpora[name], tokenizer, longest) for name, part in kept.items()}
    validation = {n: in_pieces(p, corpora[n], tokenizer, longest)[0] for n, p in corpus.validation.parts.items()}
    learned = tuple(raw for _, raw in made.values())
    return PreparedMixture(corpus, tokenizer, {n: each for n, (each, _) in made.items()}, validation, learned)


def in_pieces(
    part: "datasets.Dataset", settings: CorpusSettings, tokenizer: Tokenizer, longest: int
) -> tuple[TokenizedPairSource, TokenizedDataset | RaggedArray]:
    """A corpus as what is learned from it, and the pieces that this is made of."""
    if settings.objective == "span-corruption":
        texts = encode_texts(part.select_columns(["source"]).rename_column("source", "text"), tokenizer)
        prefix = np.array(tokenizer.encode(settings.prefix.rstrip()), dtype=np.int32)
        return CorruptedText(texts, prefix, tokenizer.size, settings.share, settings.span, longest), texts
    encoded = encode_corpus(prefixed(part, settings.prefix), tokenizer, tokenizer)
    return FixedPairs(encoded), encoded


def sources_of(corpora: Mapping[str, CorpusSettings], parts: Mapping[str, "datasets.Dataset"]) -> Iterator[str]:
    """All sources of parts of corpora, after their prefixes."""
    for name, part in parts.items():
        yield from (with_prefix(corpora[name].prefix, source) for source, _ in pairs(part))


def read_and_written(corpora: Mapping[str, CorpusSettings], parts: Mapping[str, "datasets.Dataset"]) -> Iterator[str]:
    """All texts of parts of corpora, prefixes included; where spans are taken out, a text is read alone."""
    for name, part in parts.items():
        yield from (corpora[name].prefix + source for source, _ in pairs(part))
        if corpora[name].objective == "pairs":
            yield from (target for _, target in pairs(part))
