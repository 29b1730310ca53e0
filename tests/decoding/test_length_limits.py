"""Warnings about outputs and inputs beyond the length limits."""

import math
from decimal import Decimal
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from s2s.decoding.generate import length_limited, max_output_lengths
from s2s.recipe.schema import DecodingSettings
from s2s.tasks.coverage import count_sentences
from s2s.tasks.line_translation import TooLong
from s2s.tasks.seq2seq import longest_source, unreachable_references


def _lengths(*pairs: tuple[int, int]) -> Any:
    """Tokens of sources and targets; `EOS` is added."""
    sources, targets = (np.array(side) + 1 for side in zip(*pairs, strict=True))
    return SimpleNamespace(source_lengths=sources, target_lengths=targets)


def _model(longest: int | None = None, one_to_one: bool = False) -> Any:
    return SimpleNamespace(decoder=SimpleNamespace(max_positions=longest, is_one_to_one=one_to_one))


def test_length_limits_unreachable_references_names_the_setting_that_allows_all():
    settings = DecodingSettings(max_ratio=1.5, max_extra=2)
    lengths = _lengths((3, 7), (3, 8), (4, 9))
    found = unreachable_references("test", lengths, _model(), settings)
    assert found is not None
    assert found.startswith("2 of 3 test references are longer than decoding allows")
    assert found.endswith("set decoding.max_extra=3 or higher")
    enough = settings.model_copy(update={"max_extra": 3})
    assert unreachable_references("test", lengths, _model(), enough) is None
    # BOS takes a position: 10 positions allow 9 tokens
    assert unreachable_references("test", lengths, _model(10), enough) is None
    found = unreachable_references("test", lengths, _model(9), enough)
    assert found is not None
    assert found.startswith("1 of 3 test references")
    assert found.endswith("set model.max_positions=10 or higher")
    assert unreachable_references("test", lengths, _model(one_to_one=True), settings) is None


@pytest.mark.parametrize("ratio", ["0.07", "0.5", "1.1", "1.15", "2.0", "3.3"])
def test_length_limits_are_those_of_exact_arithmetic(ratio):
    sources = np.arange(1, 300)
    exact = [math.ceil(Decimal(ratio) * source) + 3 for source in sources.tolist()]
    assert max_output_lengths(sources, DecodingSettings(max_ratio=float(ratio), max_extra=3)).tolist() == exact


def test_length_limits_longest_source_ignores_pairs_left_out_of_training():
    assert longest_source(_lengths((3, 2), (5, 30), (40, 2), (4, 4)), max_length=20) == 4


def test_length_limited_counts_and_is_none_where_there_is_nothing_to_report():
    assert str(length_limited([True, False, True], ("decoding.max_ratio", "decoding.max_extra"))) == (
        "2 of 3 outputs ended at the length limit; for longer ones, raise decoding.max_ratio or decoding.max_extra"
    )
    assert length_limited([False], ("decoding.max_ratio",)) is None
    assert length_limited([True], ()) is None


def _told(tokens: list[int], longest: int | None, at_once: bool = False) -> list[str]:
    told: list[str] = []
    lines = TooLong(longest, cast(Any, told.append), at_once)
    for each in tokens:
        lines.add(each)
    lines.report()
    return told


def test_length_limits_too_long_reports_the_count_and_the_first_line():
    assert _told([5, 57, 412], 57) == ["line 3: 412 tokens, the longest training text has 57; split it into sentences"]
    assert _told([58, 0, 60], 57) == [
        "2 of 3 lines are longer than any training text (first line 1: 58 tokens, the longest training text has 57); "
        "split them into sentences"
    ]
    assert _told([58, 4], 57, at_once=True) == ["58 tokens, the longest training text has 57; split it into sentences"]
    assert _told([57, 0], 57) == _told([100], None) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The old man sleeps.", 1),
        ("The old man sleeps. He snores! Does he?", 3),
        ("3.5 metres", 0),
        ("Wait... what", 1),
        ("老人睡觉。他打鼾。", 2),
        ("", 0),
    ],
)
def test_length_limits_count_sentences(text, count):
    assert count_sentences(text) == count


def test_length_limits_too_long_reports_several_sentences_in_a_line():
    told: list[str] = []
    lines = TooLong(57, cast(Any, told.append), at_once=False, sentences=1)
    lines.add(15, 3)
    lines.add(10, 1)
    lines.add(0, 5)
    lines.report()
    assert told == ["line 1: 3 sentences, training texts have at most 1; split it into sentences"]
