"""Data with rules, to be learned through `s2s new`: commands in the manner of SCAN, and a spelling with its phones.

python benchmarks/rules.py FOLDER

writes `tasks_train.txt` and `tasks_test.txt`, lines `IN: jump twice OUT: I_JUMP I_JUMP` of all 20,910 commands of the
grammar (Lake & Baroni 2018, "Generalization without systematicity", figure 6), and `words_train.csv` and
`words_test.csv`, invented words and their phones by rules in context. No test source occurs in training.
"""

import argparse
import csv
import random
import re
from collections.abc import Iterator
from pathlib import Path

Pairs = list[tuple[str, str]]

_ONSETS = (*"bcdfghjklmnprstvwz", "ch", "sh", "th", "ph", "qu", "st", "tr", "pl", "gr", "cl", "sp", "fl", "wh", "kn")
_VOWELS = (*"aeiouaeiou", "ea", "oo", "ai", "ou")
_CODAS = ("", "", "", *"bdglmnprtx", "ck", "ng", "nk", "st", "ll", "ss", "sh", "th")
_SPELLINGS = (
    # (spelling, what follows, phones), the first that fits; ^ before a spelling: only at the beginning of a word
    ("^kn", "", "n"),
    ("^wh", "", "w"),
    ("ch", "", "tʃ"),
    ("sh", "", "ʃ"),
    ("th", "", "θ"),
    ("ph", "", "f"),
    ("qu", "", "k w"),
    ("ck", "", "k"),
    ("ng", "$", "ŋ"),
    ("n", "[kgxc]", "ŋ"),
    ("ll", "", "l"),
    ("ss", "", "s"),
    ("x", "", "k s"),
    ("c", "[eiy]", "s"),
    ("c", "", "k"),
    ("g", "[eiy]", "dʒ"),
    ("j", "", "dʒ"),
    ("^p", "[aeiou]", "pʰ"),
    ("^t", "[aeiou]", "tʰ"),
    ("^k", "[aeiou]", "kʰ"),
    ("ea", "", "iː"),
    ("oo", "", "uː"),
    ("ai", "", "eɪ"),
    ("ou", "", "aʊ"),
    ("a", "[^aeiou]e$", "eɪ"),
    ("i", "[^aeiou]e$", "aɪ"),
    ("o", "[^aeiou]e$", "əʊ"),
    ("u", "[^aeiou]e$", "juː"),
    ("e", "$", ""),
    ("a", "", "æ"),
    ("e", "", "ɛ"),
    ("i", "", "ɪ"),
    ("o", "", "ɒ"),
    ("u", "", "ʌ"),
)


def commands() -> Pairs:
    """All commands of the grammar with their actions, by the alphabet."""
    verbs = {verb: (verb, f"I_{verb.upper()}") for verb in ("walk", "look", "run", "jump")}
    phrases = {verb: [action] for verb, action in verbs.values()}
    for side in ("left", "right"):
        turn = f"I_TURN_{side.upper()}"
        for verb, action in [("turn", []), *((verb, [action]) for verb, action in verbs.values())]:
            phrases[f"{verb} {side}"] = [turn, *action]
            phrases[f"{verb} opposite {side}"] = [turn, turn, *action]
            phrases[f"{verb} around {side}"] = [turn, *action] * 4
    often = {f"{words}{word}": actions * n for words, actions in phrases.items() for word, n in _TIMES}
    pairs = [(words, " ".join(actions)) for words, actions in often.items()]
    for one, first in often.items():
        for other, second in often.items():
            pairs.append((f"{one} and {other}", " ".join(first + second)))
            pairs.append((f"{one} after {other}", " ".join(second + first)))
    return sorted(pairs)


_TIMES = (("", 1), (" twice", 2), (" thrice", 3))


def words(count: int, seed: int) -> Pairs:
    """Invented words of one to three syllables, all different, with their phones.

    Args:
        count: of words.
        seed: of their choice.
    """
    generator, found = random.Random(seed), {}
    while len(found) < count:
        syllables = generator.choice((1, 2, 2, 3))
        parts = [generator.choice(part) for _ in range(syllables) for part in (_ONSETS, _VOWELS, _CODAS)]
        word = "".join(parts) + generator.choice(("", "", "e"))
        found[word] = " ".join(phones(word))
    return list(found.items())


def phones(word: str) -> Iterator[str]:
    """The phones of a word, by the first spelling that fits at each place."""
    position = 0
    while position < len(word):
        letters, sounds = next(_fitting(word, position), (word[position], word[position]))
        yield from sounds.split()
        position += len(letters)


def _fitting(word: str, position: int) -> Iterator[tuple[str, str]]:
    for spelling, following, sounds in _SPELLINGS:
        letters = spelling.removeprefix("^")
        begins = word.startswith(letters, position) and not (position and spelling != letters)
        if begins and re.match(following, word[position + len(letters) :]):
            yield letters, sounds


def split(pairs: Pairs, test: int, seed: int = 1) -> tuple[Pairs, Pairs]:
    """Training and test pairs, drawn at random."""
    shuffled = random.Random(seed).sample(pairs, len(pairs))
    return shuffled[test:], shuffled[:test]


def write_commands(path: Path, pairs: Pairs) -> None:
    """Writes pairs in the form of SCAN's files."""
    path.write_text("".join(f"IN: {source} OUT: {target}\n" for source, target in pairs), encoding="utf-8")


def write_words(path: Path, pairs: Pairs) -> None:
    """Writes pairs as a table with a header."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("word", "phones"), *pairs])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write data with rules.")
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, pairs, test, write, ending in (
        ("tasks", commands(), 4_182, write_commands, "txt"),
        ("words", words(12_000, seed=1), 2_000, write_words, "csv"),
    ):
        for part, chosen in zip(("train", "test"), split(pairs, test), strict=True):
            write(folder / f"{name}_{part}.{ending}", chosen)


if __name__ == "__main__":
    main()
