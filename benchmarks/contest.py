"""Contestants take turns, so that a noisy machine is noisy for all; and the corpus that most of them learn from."""

import time
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TypeVar

from s2s.data.pairs import load
from s2s.data.tokenized import TokenizedDataset, encode_corpus
from s2s.data.tokenizers import Tokenizer, train_pair
from s2s.recipe.schema import TokenizerSettings
from s2s.tasks.translation.recipe import DataSettings

Name = TypeVar("Name", bound=Hashable)
Found = TypeVar("Found")


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(contestants: Mapping[Name, Callable[[], Found]], rounds: int, warm: int = 2) -> dict[Name, list[Found]]:
    """What each of them gives when it is called, round by round, after some rounds that do not count."""
    found: dict[Name, list[Found]] = {name: [] for name in contestants}
    for turn in range(warm + rounds):
        for name, once in contestants.items():
            given = once()
            if turn >= warm:
                found[name].append(given)
    return found


def multi30k(root: Path) -> tuple[TokenizedDataset, Tokenizer]:
    """Multi30k's training pairs, by its files, as 8,000 joint pieces."""
    corpus = load(DataSettings(corpus="bentrevett/multi30k", root=str(root)))
    tokenizer, _ = train_pair(corpus.train["source"], corpus.train["target"], TokenizerSettings(size=8000))
    return encode_corpus(corpus.train, tokenizer, tokenizer), tokenizer
