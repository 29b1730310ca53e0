"""From a recipe's data section to pieces: load, filter, cut, encode."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from s2s.data.corpora import Corpus, load
from s2s.data.encoding import Encoded, encode_corpus
from s2s.data.filters import Ledger, filter_training
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.recipe.schema import Recipe


@dataclass(frozen=True)
class Prepared:
    """Everything about the data that training needs.

    Attributes:
        corpus: as text, training pairs filtered.
        source_tokenizer: cuts the source.
        target_tokenizer: joins the target; the same object when they share one vocabulary.
        train: training pairs as pieces.
        validation: validation pairs as pieces.
    """

    corpus: Corpus
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: Encoded
    validation: Encoded

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizers, whatever their files are called."""
        digest = hashlib.blake2b(digest_size=16)
        for array in self.train.arrays():
            digest.update(array.data)
        return {
            "training_data": digest.hexdigest(),
            "source_tokenizer": self.source_tokenizer.digest,
            "target_tokenizer": self.target_tokenizer.digest,
        }


def prepare(
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer | None] | None, say: Callable[[str], None]
) -> Prepared:
    """Loads, filters and encodes the corpus.

    Args:
        recipe: the resolved recipe.
        tokenizers: those of a run that continues, or the source's of the run that the encoder comes from and none for
            the target; None to train new ones.
        say: prints a line.
    """
    corpus = load(recipe.data)
    kept, ledger = filter_training(corpus.train, recipe.data.filters)
    say(str(ledger))
    if not len(kept):
        raise _none_left(ledger)
    source, target = tokenizers or train_pair(kept["source"], kept["target"], recipe.tokenizer)
    target = target or train_tokenizer(kept["target"], recipe.tokenizer.of("target"), "target")
    corpus = Corpus(kept, corpus.validation, corpus.test)
    train = encode_corpus(kept, source, target)
    validation = encode_corpus(corpus.validation, source, target)
    return Prepared(corpus, source, target, train, validation)


def _none_left(ledger: Ledger) -> UserError:
    counts = ", ".join(f"{rule}: {count:,}" for rule, count in ledger.dropped.items() if count)
    blank = not any(count for rule, count in ledger.dropped.items() if not rule.startswith("empty"))
    where, remedy = (
        ("data.train", "name files whose lines hold text on both sides") if blank else ("data.filters", "loosen them")
    )
    return UserError(f"no training pair is left ({counts})", where=where, remedy=remedy)
