"""Words of a training text, of which other texts have unknown ones."""

import numpy as np

from s2s.data.tokenizers import Tokenizer
from s2s.tasks.coverage import measure_coverage


def test_coverage_marks_at_the_end_of_a_word_are_part_of_it():
    tokenizer = Tokenizer(b"", "bytes", "identity", lowercase=False)
    text = "का, cafe\u0301! (dogs)"
    seen = measure_coverage([text], np.arange(tokenizer.size), len(tokenizer.encode(text)), tokenizer)
    assert seen.words == {"का", "cafe\u0301", "dogs"}
    assert seen.unknown("की का", tokenizer) == ("की",)
    assert seen.unknown("cafe cafe\u0301.", tokenizer) == ("cafe",)
