"""Corpora of a mixture: reading, filtering and tokenization."""

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int

from s2s.data.corruption import CorruptedText
from s2s.data.mixing import FixedPairs, TokenizedPairSource
from s2s.data.pair_files import place_of_row
from s2s.data.pairs import FilterReport, PairSource, filter_training, pairs, prefixed, without_spaces_around_targets
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
    """One split of several corpora.

    Attributes:
        parts: Pairs by corpus, as text without prefix, in the columns `source` and `target`.
    """

    parts: Mapping[str, "datasets.Dataset"]

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def select(self, indices: Int[np.ndarray, " chosen"], /) -> "Mixture":
        """Return the examples at these indices, counted over all corpora; corpora without examples are left out."""
        ends = np.cumsum([0, *map(len, self.parts.values())])
        spans = zip(self.parts.items(), itertools.pairwise(ends.tolist()), strict=True)
        rows = np.asarray(indices)
        chosen = {name: (part, rows[(rows >= a) & (rows < b)] - a) for (name, part), (a, b) in spans}
        return Mixture({name: part.select(some) for name, (part, some) in chosen.items() if len(some)})


class TaskSource(PairSource):
    """Source of one corpus; the targets of a task with answers are checked."""

    settings: CorpusSettings

    def load_split(self, name: str, train: "datasets.Dataset | None" = None) -> "datasets.Dataset | None":
        """Return a split; refuse targets that are none of the answers, and remove spaces around them.

        Empty targets pass in the training set, because filters drop them.
        """
        found, answers = super().load_split(name, train), self.settings.answers
        if found is None or not answers:
            return found
        wanted = {*answers, ""} if name == "train" else {*answers}
        wrong = [row for row, (_, target) in enumerate(pairs(found)) if target.strip() not in wanted]
        if wrong:
            more = f", and {len(wrong) - 1:,} more targets" if wrong[1:] else ""
            said = found[wrong[0]]["target"][:60]
            what = f"the target is {said!r}, which is none of the answers {', '.join(answers)}{more}"
            raise UserError(what, place_of_row(self, name, wrong[0]), "add it to `answers`, or correct the row")
        return without_spaces_around_targets(found)

    def classes(self, part: "datasets.Dataset") -> Int[np.ndarray, " examples"]:
        """Return the index of each pair's answer; one class for all without `answers`."""
        answers = {answer: number for number, answer in enumerate(self.settings.answers or ())}
        if not answers:
            return super().classes(part)
        return np.array([answers.get(target.strip(), -1) for _, target in pairs(part)], dtype=np.int64)


class MixtureSource(Source[Any, Mixture]):
    """Source of a mixture; each corpus is read like a corpus of task `translation`.

    Held-out examples of a corpus are removed from its own training data; for the other corpora, see
    `build_training_mixture`.
    """

    settings: MixtureSettings
    inputs: ClassVar[str] = "sources"
    section: ClassVar[str] = "data.corpora.NAME"

    def sources(self) -> dict[str, TaskSource]:
        """Return the source of each corpus; with span corruption, only sources are read."""
        found = {}
        for name, settings in self.settings.corpora.items():
            alone = {"target": settings.source} if settings.objective == "span-corruption" else {}
            found[name] = TaskSource(settings.model_copy(update=alone))
        return found

    def read(self, name: str, split: str | tuple[str, str], train: Mixture | None) -> Mixture:
        parts = {}
        for corpus, source in self.sources().items():
            with _name_corpus_in_errors(corpus):
                part = source.load_split(name, train.parts[corpus] if train else None)
            if part is not None:
                parts[corpus] = part
        return Mixture(parts)

    def load(self) -> Corpus[Mixture]:
        parts: dict[str, dict[str, "datasets.Dataset"]] = {"train": {}, "validation": {}, "test": {}}
        notes, rows = [], dict[str, Int[np.ndarray, " examples"]]()
        for corpus, source in self.sources().items():
            with _name_corpus_in_errors(corpus):
                loaded = source.load()
                for split, part in loaded.splits().items():
                    parts[split][corpus] = part
                rows |= {f"{corpus}.{split}": numbers for split, numbers in loaded.rows.items()}
                if loaded.note:
                    notes.append(f"{corpus}: {loaded.note}")
        test = Mixture(parts["test"]) if parts["test"] else None
        return Corpus(Mixture(parts["train"]), Mixture(parts["validation"]), test, "\n".join(notes), rows)

    def keys(self, part: Mixture) -> Iterable[Hashable]:
        return ((name, source) for name, each in part.parts.items() for source, _ in pairs(each))

    def keys_with_targets(self, part: Mixture) -> Iterable[Hashable]:
        return ((name, *pair) for name, each in part.parts.items() for pair in pairs(each))

    def held_out(self, name: str, part: Mixture) -> dict[str, str]:
        """Return hashes of held-out examples, by corpus.

        Each corpus is independent of the test sets of the others.
        """
        sources, found = self.sources(), {}
        for corpus, each in part.parts.items():
            found |= {f"{key}.{corpus}": digest for key, digest in sources[corpus].held_out(name, each).items()}
        return found

    def digest(self, part: Mixture) -> str:
        sources = self.sources()
        found = "\n".join(f"{name} {sources[name].digest(each)}" for name, each in part.parts.items())
        return hashlib.sha256(found.encode()).hexdigest()[:32]


@contextmanager
def _name_corpus_in_errors(corpus: str) -> Iterator[None]:
    """Add the name of the corpus to a `UserError` of the block."""
    try:
        yield
    except UserError as error:
        what, where, remedy = (own_keys(text, corpus) for text in (error.what, error.where, error.remedy))
        raise UserError(f"{what} (data.corpora.{corpus})", where, remedy) from None


def own_keys(text: str, corpus: str) -> str:
    """Rewrite keys of a single corpus in a message as keys of a corpus in a mixture.

    Example:
        >>> own_keys("look at data.train", "plural")
        'look at data.corpora.plural.train'
    """
    return re.sub(r"(?<![\w./-])data\.(?=[a-z])(?!corpora\b)", f"data.corpora.{corpus}.", text)


@dataclass(frozen=True)
class TrainingMixture:
    """Training examples of a corpus.

    Attributes:
        kept: Pairs that pass the filters.
        filter_report: Number of pairs dropped by each filter.
        elsewhere: Number of pairs dropped because another corpus holds them out.
    """

    kept: "datasets.Dataset"
    filter_report: FilterReport
    elsewhere: int

    def __str__(self) -> str:
        return f"{self.filter_report}\n{self.held_out}" if self.elsewhere else str(self.filter_report)

    @property
    def held_out(self) -> str:
        """Number of pairs that another corpus holds out, as text."""
        return f"{self.elsewhere:,} of its examples are held out by another corpus: left out"


def build_training_mixture(
    corpora: Mapping[str, CorpusSettings], corpus: Corpus[Mixture]
) -> dict[str, TrainingMixture]:
    """Filter the training examples of each corpus.

    Examples that overlap with the validation or test set of another corpus are dropped: an example whose source is a
    source or target there, or whose target is a source there. A translation is thus held out in both directions. Equal
    targets are no overlap, because different examples may have the same target, such as tags.
    """
    scored = [part.parts for part in (corpus.validation, corpus.test) if part is not None]
    found = {}
    for name, part in corpus.train.parts.items():
        kept, report = filter_training(part, corpora[name].filters)
        held = [pair for parts in scored for other, each in parts.items() if other != name for pair in pairs(each)]
        sources = {source for source, _ in held}
        known = sources.union(target for _, target in held)
        # An answer is one of a few words, so that an equal source means nothing.
        excluded = set() if corpora[name].answers else sources
        rows = [
            row for row, (source, target) in enumerate(pairs(kept)) if source not in known and target not in excluded
        ]
        elsewhere = len(kept) - len(rows)
        found[name] = TrainingMixture(kept.select(rows) if elsewhere else kept, report, elsewhere)
    return found


@dataclass(frozen=True)
class PreparedMixture:
    """Filtered corpora as text and as tokens, prefixes included.

    Attributes:
        corpus: Splits as text.
        train: Training examples by corpus.
        validation: Validation examples by corpus.
        learned: Tokens that the training examples are made of.
    """

    corpus: Corpus[Mixture]
    tokenizer: Tokenizer
    train: dict[str, TokenizedPairSource]
    validation: dict[str, TokenizedPairSource]
    learned: tuple[TokenizedDataset | RaggedArray, ...]

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """The tokenizer of all texts."""
        return (self.tokenizer,)

    @property
    def chance_loss(self) -> float:
        return math.log(self.tokenizer.size)

    def hashes(self) -> dict[str, str]:
        arrays = (array for each in self.learned for array in each.arrays())
        return {"training_data": digest_of_arrays(arrays), "tokenizer": self.tokenizer.digest}


def prepare(recipe: TextToTextRecipe, tokenizer: Tokenizer | None, print_fn: Callable[[str], None]) -> PreparedMixture:
    """Load, filter and tokenize all corpora of a recipe.

    Args:
        tokenizer: Tokenizer of a resumed run or of the encoder's run; None trains a new one on all texts.

    Raises:
        UserError: A corpus cannot be read (see `MixtureSource`), or no pair of a corpus passes the filters.
    """
    corpora = recipe.data.corpora
    corpus, kept = MixtureSource(recipe.data).load(), {}
    if corpus.note:
        print_fn(corpus.note)
    for name, learned in build_training_mixture(corpora, corpus).items():
        print_fn(f"{name}: {learned}")
        if not len(learned.kept):
            remedy = "loosen its filters, hold out fewer, or repair its files"
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
    """Tokenize a corpus."""
    if settings.objective == "span-corruption":
        texts = encode_texts(part.select_columns(["source"]).rename_column("source", "text"), tokenizer)
        prefix = np.array(tokenizer.encode(settings.prefix.rstrip()), dtype=np.int32)
        return CorruptedText(texts, prefix, tokenizer.size, settings.share, settings.span, longest), texts
    encoded = encode_corpus(prefixed(part, settings.prefix), tokenizer, tokenizer)
    return FixedPairs(encoded), encoded


def read_and_written(corpora: Mapping[str, CorpusSettings], parts: Mapping[str, "datasets.Dataset"]) -> Iterator[str]:
    """Yield all sources with their prefixes, and all targets; with span corruption, there is no target."""
    for name, part in parts.items():
        yield from (corpora[name].prefix + source for source, _ in pairs(part))
        if corpora[name].objective == "pairs":
            yield from (target for _, target in pairs(part))
