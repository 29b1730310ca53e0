"""A tokenized corpus equals tokenization text by text."""

import datasets
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from s2s.data.batches import collate, make_batches
from s2s.data.tokenized import RaggedArray, TokenizedDataset, encode_corpus
from s2s.data.tokenizers import Tokenizer
from s2s.recipe.schema import TokenizerSettings

SOURCES = [f"{'very ' * (n % 7)}old dog {n}" for n in range(300)]
TARGETS = [f"{'sehr ' * (n % 5)}alter Hund {n}" if n % 50 else "" for n in range(300)]


def tokenizer(lowercase: bool = False) -> Tokenizer:
    settings = TokenizerSettings(kind="bytes", lowercase=lowercase)
    return Tokenizer(b"", settings.kind, settings.normalization, settings.lowercase)


@pytest.fixture
def on_disk(tmp_path) -> str:
    table = {"source": SOURCES, "target": TARGETS, "number": list(range(300))}
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(table).save_to_disk(tmp_path / "corpus")
    datasets.enable_progress_bars()
    return str(tmp_path / "corpus")


def test_encoding_every_row_is_what_the_tokenizers_make_of_its_texts(on_disk):
    lower = tokenizer(lowercase=True)
    encoded = encode_corpus(datasets.load_from_disk(on_disk), tokenizer(), lower)
    assert len(encoded) == 300
    assert [encoded.pair(n) for n in range(300)] == [
        (tokenizer().encode(source), lower.encode(target)) for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    assert encoded.pair(-1) == encoded.pair(299)
    assert encoded.source_lengths.tolist() == [len(text) + 1 for text in SOURCES]
    assert encoded.target_lengths.tolist() == [len(text) + 1 for text in TARGETS]
    with pytest.raises(IndexError):
        encoded.pair(300)


def in_chunks(sizes: list[int]) -> TokenizedDataset:
    """Row n is n times n on one side and one n on the other; chunks of these sizes, each of them a slice."""
    first, chunks = 0, []
    features = datasets.Features(dict.fromkeys(("source", "target"), datasets.List(datasets.Value("int32"))))
    for size in sizes:
        rows = range(first - 1, first + size + 1)
        table = {"source": [[n] * max(n, 0) for n in rows], "target": [[n] for n in rows]}
        chunks.append(datasets.Dataset.from_dict(table, features=features).data.slice(1, size))
        first += size
    whole = datasets.table.concat_tables(chunks)
    return TokenizedDataset(*(RaggedArray.from_column(whole.column(side)) for side in ("source", "target")))


def test_encoding_rows_in_memory_are_those_of_a_table():
    rows = ([[5, 6, 7], [], [8]], [[9], [10, 11], []])
    features = datasets.Features(dict.fromkeys(("source", "target"), datasets.List(datasets.Value("int32"))))
    table = datasets.Dataset.from_dict(dict(zip(features, rows, strict=True)), features=features).data
    kept = TokenizedDataset(*(RaggedArray.from_column(table.column(side)) for side in features))
    for sides in (rows, [[np.array(row, np.int64) for row in side] for side in rows]):
        held = TokenizedDataset.from_rows(*sides)
        for one, other in zip(held.arrays(), kept.arrays(), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
        assert [held.pair(i) for i in range(3)] == [kept.pair(i) for i in range(3)]
    assert len(TokenizedDataset.from_rows([], [])) == 0


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=50)
@given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5), data=st.data())
def test_encoding_rows_are_found_in_whatever_chunks_they_lie(sizes, data):
    encoded = in_chunks(sizes)
    total = sum(sizes)
    chosen = data.draw(st.lists(st.integers(-total, total - 1), max_size=9) if total else st.just([]))
    sources, targets = encoded.rows(np.array(chosen, dtype=np.int64))
    numbers = [n % total for n in chosen]
    assert [row.tolist() for row in sources] == [[n] * n for n in numbers]
    assert [row.tolist() for row in targets] == [[n] for n in numbers]
    assert encoded.source_lengths.tolist() == [n + 1 for n in range(total)]


def test_digest_does_not_depend_on_chunks():
    def joined(sizes: list[int]) -> bytes:
        return b"".join(array.tobytes() for array in in_chunks(sizes).arrays())

    assert joined([6, 3]) == joined([9]) == joined([1, 0, 8])
    # eight bytes of lengths a row, 0 + 1 + … + 8 pieces on one side and one a row on the other
    assert len(joined([9])) == 9 * 8 + (36 + 9) * 4
    assert all(memoryview(array).contiguous for array in in_chunks([6, 3]).arrays())


def test_encoding_pairs_that_are_too_long_are_counted_not_forgotten(on_disk):
    encoded = encode_corpus(datasets.load_from_disk(on_disk), tokenizer(), tokenizer())
    kept, dropped = encoded.within(30)
    longest = [max(len(source), len(target)) + 1 for source, target in zip(SOURCES, TARGETS, strict=True)]
    assert kept.tolist() == [n for n, length in enumerate(longest) if length <= 30]
    assert dropped == sum(length > 30 for length in longest) > 0
    assert encoded.within(max(longest))[1] == 0


def test_encoding_corpus_on_disk_is_cut_once_for_the_same_tokenizers(on_disk, monkeypatch):
    cut = []
    encode_batch = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda self, texts: cut.append(1) or encode_batch(self, texts))

    def times(source: Tokenizer, target: Tokenizer, rows: int = 300) -> int:
        before = len(cut)
        encode_corpus(datasets.load_from_disk(on_disk).select(range(rows)), source, target)
        return len(cut) - before

    plain, lower = tokenizer(), tokenizer(lowercase=True)
    assert times(plain, plain) == 2
    assert times(tokenizer(), tokenizer()) == 0
    assert times(plain, lower) == 2
    assert times(lower, plain) == 2
    assert times(plain, plain, rows=299) == 2
    assert times(plain, plain) == 0


def test_encoding_corpus_in_memory_is_cut_as_well():
    corpus = datasets.Dataset.from_dict({"source": SOURCES, "target": TARGETS})
    assert encode_corpus(corpus, tokenizer(), tokenizer()).pair(7)[0] == tokenizer().encode(SOURCES[7])


def test_encoding_pieces_stay_in_the_file(on_disk):
    encoded = encode_corpus(datasets.load_from_disk(on_disk), tokenizer(), tokenizer())
    sources, targets = encoded.rows(np.array([5, 250]))
    assert not any(row.flags.owndata or row.flags.writeable for row in sources + targets)


def test_encoding_no_progress_bar_is_drawn_where_no_terminal_is(on_disk, capfd):
    encode_corpus(datasets.load_from_disk(on_disk), tokenizer(), tokenizer())
    assert capfd.readouterr() == ("", "")
    assert not datasets.are_progress_bars_disabled()


def test_encoding_batches_of_an_epoch_hold_the_whole_corpus(on_disk):
    encoded = encode_corpus(datasets.load_from_disk(on_disk), tokenizer(), tokenizer())
    batches = [
        collate(*encoded.rows(rows), rows)
        for rows in make_batches(encoded.source_lengths, encoded.target_lengths, 200, 1, 0)
    ]
    found = {
        int(index): (tokenizer().decode(source), tokenizer().decode(target))
        for batch in batches
        for index, source, target in zip(batch.indices, batch.source.tolist(), batch.target_out.tolist(), strict=True)
    }
    assert found == dict(enumerate(zip(SOURCES, TARGETS, strict=True)))
    assert sum(batch.tokens for batch in batches) == encoded.target_lengths.sum()
