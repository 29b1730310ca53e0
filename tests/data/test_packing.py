"""Documents packed into rows, and read through windows."""

import itertools
import lzma

import numpy as np
import pytest

from s2s.data.phrasebook import phrases
from s2s.data.tokenizers import BOS, EOS, PAD
from s2s.errors import UserError
from s2s.tasks.language_model.data import DocumentSource, PackedTexts, Windows
from s2s.tasks.language_model.recipe import DocumentSettings, PackingSettings


class _Texts:
    def __init__(self, texts: list[list[int]]) -> None:
        self.texts = [np.array(text, dtype=np.int32) for text in texts]
        self.lengths = np.array([len(text) for text in texts])

    def rows(self, indices) -> list[np.ndarray]:
        return [self.texts[i] for i in np.asarray(indices).tolist()]


@pytest.fixture
def texts() -> _Texts:
    """Each document has pieces of its own, so that it is known by any of them; one is empty, one is long."""
    lengths = [3, 0, 7, 1, 30, 12]
    return _Texts([[100 * row + place + 10 for place in range(n)] for row, n in enumerate(lengths, start=1)])


def _said(batch) -> list[tuple[int, int]]:
    return [
        (int(read), int(said))
        for row in range(len(batch.read))
        for read, said, valid in zip(batch.read[row], batch.following[row], batch.valid[row], strict=True)
        if valid
    ]


def _expected(texts: _Texts) -> list[tuple[int, int]]:
    joined = [[BOS, *text.tolist(), EOS] for text in texts.texts]
    return sorted(pair for text in joined for pair in itertools.pairwise(text))


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_packing_epoch_learns_each_place_of_each_document_once(texts, epoch):
    packed = PackedTexts(texts, PackingSettings(length=8, tokens=24))
    batches = [packed.collate(rows, 5) for rows in packed.make_batches(3, epoch)]
    found = sorted(pair for batch in batches for pair in _said(batch))
    assert found == [pair for pair in _expected(texts) if pair != (BOS, EOS)]
    assert sum(batch.count for batch in batches) == packed.places == len(found)
    assert {batch.read.shape[1] for batch in batches} <= set(range(1, 9))
    assert all(len(batch.read) <= 3 for batch in batches)


def test_packing_row_holds_documents_one_after_the_other(texts):
    packed = PackedTexts(texts, PackingSettings(length=8, tokens=24))
    stream = [piece for row in packed.order for piece in (BOS, *texts.texts[row].tolist())]
    ends = [piece for row in packed.order for piece in (*texts.texts[row].tolist(), EOS)]
    for rows in packed.make_batches(1, 0):
        batch = packed.collate(rows, 0)
        for number, start in enumerate(rows.tolist()):
            here = slice(max(0, start), start + 8)
            real = batch.valid[number]
            assert batch.read[number][real].tolist() == stream[here]
            assert batch.following[number][real].tolist() == ends[here]
            assert batch.read[number][~real].eq(PAD).all()


def test_packing_offsets_change_every_epoch_and_are_reproducible(texts):
    packed = PackedTexts(texts, PackingSettings(length=8, tokens=24))
    plans = [[rows.tolist() for rows in packed.make_batches(7, epoch)] for epoch in (0, 1, 2, 3, 0)]
    assert plans[0] == plans[4]
    assert len({min(start for rows in plan for start in rows) for plan in plans}) > 1


@pytest.mark.parametrize(("context", "stride"), [(8, 3), (8, 8), (8, 1), (64, 32), (2, 1)])
def test_packing_windows_score_each_place_once_with_as_much_before_it_as_fits(texts, context, stride):
    windows = Windows(texts, context, stride, 64)
    found, before = [], []
    for rows in windows.make_batches(0, 0):
        batch = windows.collate(rows, 0)
        found += _said(batch)
        for number in range(len(rows)):
            scored = batch.valid[number].nonzero().squeeze(1)
            before += [(int(place), int(batch.places[number, place])) for place in scored]
    assert sorted(found) == _expected(texts)
    # a place is either as deep in its window as in its document, or has all but the stride in sight
    assert all(at == place or at >= context - stride for at, place in before)


FILE = "\ufeffOne line.\r\nand more\n\n \nTwo.\n\n\nThree\nlines\nhere"


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("line", ["One line.\r", "and more", "Two.", "Three", "lines", "here"]),
        ("paragraph", ["One line.\r\nand more", "Two.", "Three\nlines\nhere"]),
        ("file", [FILE.removeprefix("\ufeff")]),
    ],
)
def test_packing_plain_text_is_cut_into_documents(tmp_path, unit, expected):
    (tmp_path / "a.md").write_text(FILE, encoding="utf-8", newline="")
    settings = DocumentSettings(train=str(tmp_path / "a.md"), document=unit)
    assert DocumentSource(settings).load_split("train")["text"][:] == expected


def test_packing_folder_is_its_text_files_in_order(tmp_path):
    (tmp_path / "b.txt").write_text("second\n", encoding="utf-8")
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(b"first\n\nand another"))
    (tmp_path / "notes.md").write_text("not this", encoding="utf-8")
    found = DocumentSource(DocumentSettings(train=str(tmp_path))).load_split("train")
    assert found["text"][:] == ["first", "and another", "second"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no file in it ends with \.txt"):
        DocumentSource(DocumentSettings(train=str(tmp_path / "empty"))).load_split("train")
    with pytest.raises(UserError, match=r"data.train: \S*c.md: no such file"):
        DocumentSource(DocumentSettings(train=str(tmp_path / "c.md"))).load_split("train")


def test_packing_txt_with_tabs_is_text_and_a_tsv_is_a_table(tmp_path):
    for name in ("a.txt", "a.tsv"):
        (tmp_path / name).write_text("1\tone\n2\ttwo\n", encoding="utf-8")
    settings = DocumentSettings(train=str(tmp_path / "a.txt"), text="1", document="line")
    assert DocumentSource(settings).load_split("train")["text"][:] == ["1\tone", "2\ttwo"]
    table = settings.model_copy(update={"train": str(tmp_path / "a.tsv")})
    assert DocumentSource(table).load_split("train")["text"][:] == ["one", "two"]


def test_packing_built_in_corpus_is_its_english_sentences():
    settings = DocumentSettings(corpus="built-in", train=5, validation=3, test=2)
    corpus = DocumentSource(settings).load()
    assert corpus.train["text"][:] == [phrase.source for phrase in phrases("train", 5)]
    assert corpus.test["text"][:] == [phrase.source for phrase in phrases("test", 2)]
