"""From a recipe's data section to pieces: load, filter, join, cut, encode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from s2s.data.encoding import Encoded, encode_corpus
from s2s.data.filters import Ledger, filter_training
from s2s.data.sources import Corpus, digest_of_arrays
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.data.tokenizers import train as train_tokenizer
from s2s.errors import UserError
from s2s.tasks.seq2seq import check_prefixes
from s2s.tasks.translation.data import OWN, TranslationSource, further, marks, together
from s2s.tasks.translation.joining import joined, told
from s2s.tasks.translation.recipe import Recipe

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True)
class Prepared:
    """Everything about the data that training needs: the filtered and joined corpus as text, and as pieces.

    Source and target have the same tokenizer where they share one vocabulary. Of several corpora, all training pairs
    stand one corpus after the other, and `sizes` says how many each has.
    """

    corpus: Corpus["datasets.Dataset"]
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    train: Encoded
    validation: Encoded
    sizes: dict[str, int]

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """One of both sides, or one of each."""
        both = self.source_tokenizer, self.target_tokenizer
        return both[:1] if both[0] is both[1] else both

    def hashes(self) -> dict[str, str]:
        """What identifies the data and the tokenizers, whatever their files are called."""
        return {
            "training_data": digest_of_arrays(self.train.arrays()),
            "source_tokenizer": self.source_tokenizer.digest,
            "target_tokenizer": self.target_tokenizer.digest,
        }


def prepare(
    recipe: Recipe, tokenizers: tuple[Tokenizer, Tokenizer | None] | None, say: Callable[[str], None]
) -> Prepared:
    """Loads, filters, joins and encodes the corpus.

    The tokenizers are those of a run that continues, or the source's of the run that the encoder comes from and none
    for the target; None to train new ones.
    """
    data = recipe.data
    corpus = TranslationSource(data).load()
    kept, ledger = filter_training(corpus.train, data.filters)
    say(str(ledger))
    if not len(kept):
        raise _none_left(ledger)
    others = further(data, corpus)
    for name, each in others.items():
        say(f"data.more.{name}: {each}")
    sizes = {OWN: len(kept), **{name: len(each.kept) for name, each in others.items()}}
    kept = together(kept, others) if others else kept
    source, target = tokenizers or train_pair(kept["source"], kept["target"], recipe.tokenizer, marks(data))
    check_prefixes({"data": data} | {f"data.more.{name}": each for name, each in data.more.items()}, source)
    target = target or train_tokenizer(kept["target"], recipe.tokenizer.of("target"), "target")
    examples = joined(kept, data)
    if data.join > 1:
        say(told(examples, len(kept)))
    train, validation = (encode_corpus(part, source, target) for part in (examples, corpus.validation))
    return Prepared(Corpus(examples, corpus.validation, corpus.test), source, target, train, validation, sizes)


def _none_left(ledger: Ledger) -> UserError:
    counts = ", ".join(f"{rule}: {count:,}" for rule, count in ledger.dropped.items() if count)
    blank = not any(count for rule, count in ledger.dropped.items() if not rule.startswith("empty"))
    where, remedy = (
        ("data.train", "name files whose lines hold text on both sides") if blank else ("data.filters", "loosen them")
    )
    return UserError(f"no training pair is left ({counts})", where=where, remedy=remedy)
