"""Recipes that `s2s new` writes for many kinds of data."""

import gzip
import json
import lzma
import random
import re
import runpy
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from s2s.data.pairs import filter_training, load
from s2s.data.tokenizers import UNK, train_pair
from s2s.errors import UserError
from s2s.run.tasks import read
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe_generation import generate_classification_recipe
from s2s.tasks.images.data import ImageSource
from s2s.tasks.images.recipe_generation import generate_image_recipe
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe_generation import generate_language_model_recipe
from s2s.tasks.recipe_generation import Splits
from s2s.tasks.translation import recipe_generation
from s2s.tasks.translation.recipe_generation import generate_translation_recipe

RULES = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "rules.py"))
NATURAL = "The rain in {0} stays {1} and nobody there {2} to see it"


def _read(folder: Path, text: str):
    (folder / "new.yaml").write_text(text, encoding="utf-8")
    return read(folder / "new.yaml")


def _sentences(count: int, seed: int = 1) -> list[str]:
    """Sentences with words of which half occur once, as natural text has them."""
    letters = random.Random(seed)

    def word() -> str:
        return "".join(letters.choices("abcdefghijklmnopqrstuvwxyz", k=letters.randint(3, 9)))

    return [NATURAL.format(word(), word(), word()) for _ in range(count)]


def _lines(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def test_new_texts_without_labels_become_a_recipe_of_lines_paragraphs_or_rows(tmp_path):
    sentences = _sentences(400)
    paragraphs = "\n\n".join("\n".join(sentences[i : i + 2]) for i in range(0, 400, 2))
    (tmp_path / "pages.md").write_text(paragraphs, encoding="utf-8")
    lines = _lines(tmp_path / "lines.txt", sentences)
    table = _lines(tmp_path / "table.tsv", ["id\ttext", *(f"{n}\t{text}" for n, text in enumerate(sentences))])
    for path, unit, count in ((tmp_path / "pages.md", "paragraph", 200), (lines, "line", 400), (table, None, 400)):
        recipe = _read(tmp_path, generate_language_model_recipe("mine", Splits(path)))
        corpus = DocumentSource(recipe.data).load()
        assert sum(map(len, corpus.splits().values())) == count
        assert recipe.data.validation == recipe.data.test == count // 20
        assert unit in (None, recipe.data.document)
        assert recipe.batches.length <= recipe.batches.tokens
    with pytest.raises(UserError, match="plain text has no columns"):
        generate_language_model_recipe("mine", Splits(lines), "text")
    with pytest.raises(UserError, match="no column 'body'"):
        generate_language_model_recipe("mine", Splits(table), "body")
    with pytest.raises(UserError, match="too few to learn from"):
        generate_language_model_recipe("mine", Splits(_lines(tmp_path / "few.txt", sentences[:9])))


@pytest.mark.slow
def test_new_commands_in_scans_own_form_lose_no_pair_and_have_room_for_every_answer(tmp_path):
    pairs = RULES["commands"]()
    assert len(pairs) == 20_910
    train, test = RULES["split"](pairs, 400)
    RULES["write_commands"](tmp_path / "train.txt", train[:2_500])
    RULES["write_commands"](tmp_path / "test.txt", test)
    splits = Splits(tmp_path / "train.txt", None, tmp_path / "test.txt")
    recipe = _read(tmp_path, generate_translation_recipe("scan", splits))
    assert (recipe.data.source, recipe.data.target, recipe.tokenizer.kind) == ("IN", "OUT", "word")
    corpus = load(recipe.data)
    assert {**dict(train)} | dict(zip(corpus.train["source"], corpus.train["target"], strict=True)) == dict(train)
    kept, filter_report = filter_training(corpus.train, recipe.data.filters)
    assert filter_report.kept == len(corpus.train) == len(kept)
    source, target = train_pair(kept["source"], kept["target"], recipe.tokenizer)
    for one, other in test:
        read_, written = source.encode(one), target.encode(other)
        assert UNK not in read_ + written
        assert len(written) < recipe.decoding.max_ratio * len(read_) + recipe.decoding.max_extra
        assert max(len(read_), len(written)) < recipe.batches.max_length


def test_new_words_and_phones_are_spelt_and_no_target_is_normalised(tmp_path):
    RULES["write_words"](tmp_path / "words.csv", RULES["words"](1_000, seed=1))
    text = generate_translation_recipe("g2p", Splits(tmp_path / "words.csv"))
    recipe = _read(tmp_path, text)
    assert (recipe.data.source, recipe.data.target, recipe.tokenizer.kind) == ("word", "phones", "char")
    assert recipe.tokenizer.normalization == "identity"
    assert re.search("'[ptk]ʰ' to '[ptk]h'", text)
    assert (
        _read(
            tmp_path, generate_translation_recipe("g2p", Splits(tmp_path / "words.csv"), "phones", "word")
        ).data.source
        == "phones"
    )
    corpus = load(recipe.data)
    source, target = train_pair(corpus.train["source"], corpus.train["target"], recipe.tokenizer)
    assert all(target.decode(target.encode(text)) == text for text in corpus.test["target"])
    assert UNK not in [piece for text in corpus.train["source"] for piece in source.encode(text)]


@pytest.mark.parametrize("pairs", [30, 1_000])
def test_new_natural_text_gets_as_many_pieces_as_it_fills(tmp_path, pairs):
    files = _lines(tmp_path / "a.en", _sentences(pairs)), _lines(tmp_path / "a.de", _sentences(pairs, seed=2))
    recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(files)))
    assert recipe.tokenizer.kind == "unigram"
    assert recipe.tokenizer.size == {30: 350, 1_000: 1_000}[pairs]
    assert (recipe.data.source, recipe.data.target) == ("en", "de")
    corpus = load(recipe.data)
    assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == pairs
    # it would refuse a size that the text does not fill
    train_pair(corpus.train["source"], corpus.train["target"], recipe.tokenizer)
    assert 0 < recipe.training.warmup == round(0.1 * recipe.training.updates)


def test_new_natural_text_of_few_words_and_many_letters_has_no_rules(tmp_path):
    """Too little text for subwords is spelt, like single words; but it has filters, and more than one right answer."""
    drawn = random.Random(1)
    letters = [chr(code) for code in (*range(0x61, 0x7B), *range(0x3B1, 0x3CA), *range(0x430, 0x450))]
    words = iter(["".join(drawn.choices(letters, k=5)) for _ in range(600)])
    rows = [f"{next(words)} and {next(words)}.\t{next(words)} {next(words)}!" for _ in range(120)]
    text = generate_translation_recipe("mine", Splits(_lines(tmp_path / "a.tsv", rows)))
    recipe = _read(tmp_path, text)
    assert (recipe.tokenizer.kind, recipe.model.kind) == ("char", "lstm-attention")
    assert (recipe.validation.metric, recipe.decoding.beam, recipe.training.label_smoothing) == ("bleu", 5, 0.1)
    assert recipe.data.filters.max_words == 250
    assert recipe.model.dropout == 0.3
    assert "rules" not in text


@pytest.mark.parametrize(("most", "kind"), [(400, "lstm-attention"), (300, "transformer")])
def test_new_small_natural_text_is_learned_by_an_lstm(tmp_path, monkeypatch, most, kind):
    monkeypatch.setattr(recipe_generation, "_SMALL", most)
    files = _lines(tmp_path / "a.en", _sentences(400)), _lines(tmp_path / "a.de", _sentences(400, seed=2))
    recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(files)))
    assert recipe.model.kind == kind
    assert recipe.model.encoder_layers == (1 if kind == "lstm-attention" else 3)


def test_new_nineteen_words_are_pieces_however_many_pairs_there_are(tmp_path):
    words, draw = [f"w{number}" for number in range(19)], random.Random(1)
    rows = [" ".join(draw.choices(words, k=draw.randint(2, 6))) for _ in range(50)]
    for times in (1, 100):
        _lines(tmp_path / "a.tsv", [f"{row}\t{row.upper()}" for row in rows] * times)
        recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(tmp_path / "a.tsv")))
        assert (recipe.tokenizer.kind, recipe.tokenizer.size) == ("word", 2 * 19 + 4)
        assert recipe.model.width == (64 if times == 1 else 128)
        assert len(load(recipe.data).validation) == 2


def test_new_every_kind_of_table_is_read_and_its_columns_found(tmp_path):
    texts = _sentences(30)
    rows = [{"en": text, "de": text.upper(), "id": str(number)} for number, text in enumerate(texts)]
    tsv = "".join(f"{row['en']}\t{row['de']}\n" for row in rows)
    (tmp_path / "a.tsv.gz").write_bytes(gzip.compress(tsv.encode()))
    (tmp_path / "a.txt.xz").write_bytes(lzma.compress(tsv.encode()))
    (tmp_path / "a.csv").write_text("id,en,de\n" + "".join(f"{row['id']},{row['en']},{row['de']}\n" for row in rows))
    _lines(tmp_path / "a.jsonl", [json.dumps(row) for row in rows])
    _lines(tmp_path / "b.jsonl", [json.dumps({"translation": {"en": row["en"], "de": row["de"]}}) for row in rows])
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    _lines(tmp_path / "b.txt", [f"en: {row['en']} de: {row['de']}" for row in rows])
    for name, columns in (
        ("a.tsv.gz", (None, None)),
        ("a.txt.xz", (None, None)),
        ("a.csv", ("en", "de")),
        ("a.jsonl", ("en", "de")),
        ("b.jsonl", (None, None)),
        ("a.parquet", ("en", "de")),
        ("b.txt", (None, None)),
    ):
        recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(tmp_path / name), *columns))
        corpus = load(recipe.data)
        parts = (corpus.train, corpus.validation, corpus.test)
        assert sorted(text for part in parts for text in part["source"]) == sorted(texts), name
        assert all(row["target"] == row["source"].upper() for part in parts for row in part), name


MISTAKES = {
    "no such column": ("a.csv", ("wrod", None), r"a.csv: no column 'wrod'; columns: 'id', 'en', 'de'(.|\n)*--source"),
    "which columns": ("a.csv", (None, None), r"nothing tells which.*'id' \(e.g. '0'\), 'en'(.|\n)*--source COLUMN"),
    "no such position": ("b.tsv", ("0", "7"), r"b.tsv: no column '7'; columns: '0', '1'"),
    "too few": ("b.tsv", (None, None), r"b.tsv: 3 different sources are too few"),
    "no file": ("aa.csv", (None, None), r"aa.csv: no such file\n.*did you mean a.csv"),
    "no table": ("a.doc", (None, None), r"a.doc: is no table \(.tsv, "),
    "no marks": (
        "a.txt",
        (None, None),
        r"a.txt:1: is 'A line.', expected cells with a tab between them, or `IN: … OUT",
    ),
    "a line without marks": ("b.txt", (None, None), r"b.txt:2: is 'IN: walk', expected IN: … OUT: …"),
    "nothing in it": ("empty.tsv", (None, None), r"empty.tsv: has no rows"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_fitting_reports_unusable_data(tmp_path, case):
    _lines(tmp_path / "a.csv", ["id,en,de", *(f"{n},one {n},zwei {n}" for n in range(30))])
    _lines(tmp_path / "b.tsv", ["One.\tEins.", "Two.\tZwei.", "Three.\tDrei."])
    for name in ("a.doc", "a.txt"):
        _lines(tmp_path / name, ["A line."])
    _lines(tmp_path / "b.txt", ["IN: walk OUT: WALK", "IN: walk"])
    (tmp_path / "empty.tsv").touch()
    name, columns, words = MISTAKES[case]
    with pytest.raises(UserError, match=words):
        generate_translation_recipe("mine", Splits(tmp_path / name), *columns)


def test_new_labelled_texts_are_fitted_by_names_by_looks_and_by_options(tmp_path):
    texts = _sentences(120)
    named = [f"{('neg', 'pos')[number % 2]}\t{text}" for number, text in enumerate(texts)]
    _lines(tmp_path / "named.tsv", ["label\ttext", *named])
    _lines(tmp_path / "bare.tsv", named)
    _lines(tmp_path / "wide.tsv", [f"{row}\tmore\t{number % 3}" for number, row in enumerate(named)])
    for name, options, columns in (
        ("named.tsv", ((), None), ("text", "label")),
        ("bare.tsv", ((), None), ("1", "0")),
        ("wide.tsv", (("1", "2"), "0"), (("1", "2"), "0")),
    ):
        recipe = _read(tmp_path, generate_classification_recipe("mine", Splits(tmp_path / name), *options))
        assert (recipe.task, recipe.data.text, recipe.data.label) == ("classification", *columns)
        corpus = LabelledSource(recipe.data).load()
        assert corpus.train.names == ("neg", "pos")
        assert len(corpus.train) + len(corpus.validation) + len(corpus.test) == 120
    with pytest.raises(UserError, match=r"nothing tells which columns are meant; there are '0' \(e.g. 'neg'\)"):
        generate_classification_recipe("mine", Splits(tmp_path / "wide.tsv"))
    with pytest.raises(UserError, match=r"no column 'lable'; columns: 'label', 'text'(.|\n)*did you mean label"):
        generate_classification_recipe("mine", Splits(tmp_path / "named.tsv"), (), "lable")
    column = (tmp_path / "named.tsv").read_text().splitlines()[0].split("\t")[0]
    with pytest.raises(UserError, match=rf"column '{column}' is both text and class"):
        generate_classification_recipe("mine", Splits(tmp_path / "named.tsv"), (column,), column)


ROWS = [f"{text}\t{n % 2}" for n, text in enumerate(_sentences(40))]
# name of the file, its lines, columns that the user names, and the message
ODD_TABLES = {
    "only a header": ("a.tsv", ["text\tlabel"], {}, r"a.tsv: has a header \(text, label\) but no rows\n"),
    "only a named header": ("a.tsv", ["body\tkind"], {"label": "kind"}, r"has a header \(body, kind\) but no rows\n"),
    "semicolons": (
        "a.csv",
        ["text;label", *(row.replace("\t", ";") for row in ROWS)],
        {},
        r"a.csv:1: cells seem to be separated by ';'\n.*convert the file: .* commas \(.csv\) or tabs \(.tsv\)",
    ),
    "semicolons and named columns": (
        "a.csv",
        ["text;label", *(row.replace("\t", ";") for row in ROWS)],
        {"texts": ("text",)},
        r"a.csv:1: cells seem to be separated by ';'",
    ),
    "quoted cells with semicolons": (
        "a.csv",
        ['"text";"label"', *('"' + row.replace("\t", '";"') + '"' for row in ROWS)],
        {},
        r"a.csv:1: cells seem to be separated by ';'",
    ),
    "semicolons without a header": (
        "a.csv",
        [row.replace("\t", ";") for row in ROWS],
        {},
        r"a.csv:1: cells seem to be separated by ';'",
    ),
    "tabs in a csv": ("a.csv", ["text\tlabel", *ROWS], {}, r"a.csv:1: cells seem to be separated by tabs\n"),
    "the label for the text": (
        "a.tsv",
        ["text\tlabel", *ROWS],
        {"label": "text"},
        r"a.tsv: text column 'label' has only 2 different values, too few to learn from\n.*--text COLUMN",
    ),
    "a text for all": (
        "a.tsv",
        ["text\tlabel", *(f"{row[:-1]}pos" for row in ROWS)],
        {"label": "text"},
        r"a.tsv: text column 'label' has only 1 different value, too few",
    ),
    "two columns of a name": (
        "a.tsv",
        ["text\ttext\tlabel", *(f"{row.split()[0]}\t{row}" for row in ROWS)],
        {},
        r"a.tsv:1: the header names 'text' 2 times\n.*rename one of these columns",
    ),
    "Windows, the text last": (
        "a.tsv",
        ["label\ttext\r", *(f"{n % 2}\ta text of {n} words\r" for n in range(40))],
        {},
        r"a.tsv:1: the header ends with a carriage return\n.*dos2unix",
    ),
    "Windows, the label last": (
        "a.tsv",
        ["text\tlabel\r", *(f"{row}\r" for row in ROWS)],
        {},
        r"a.tsv:1: the header ends with a carriage return\n.*dos2unix",
    ),
    "Windows, the named text last": (
        "a.tsv",
        ["kind\tbody\r", *(f"{n % 2}\ta text of {n} words\r" for n in range(40))],
        {"texts": ("body",)},
        r"a.tsv:1: the header ends with a carriage return\n.*dos2unix",
    ),
    "Windows without a header, the text last": (
        "a.tsv",
        [f"{n % 2}\ta text of {n} words\r" for n in range(60)],
        {},
        r"a.tsv:1: every line ends with a carriage return\n.*dos2unix",
    ),
    "Windows without a header, the label last": (
        "a.tsv",
        [f"a text of {n} words\t{n % 2}\r" for n in range(60)],
        {},
        r"a.tsv:1: the label '0\\r' has (.|\n)*dos2unix",
    ),
}


@pytest.mark.parametrize("case", ODD_TABLES)
def test_new_labelled_texts_odd_table_is_refused_with_its_remedy(tmp_path, case):
    name, lines, columns, words = ODD_TABLES[case]
    (tmp_path / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
    with pytest.raises(UserError, match=words):
        generate_classification_recipe("mine", Splits(tmp_path / name), **columns)


def test_new_carriage_returns_in_a_column_that_is_not_read_are_no_mistake(tmp_path):
    rows = "".join(f"{row}\tx\r\n" for row in ["text\tlabel", *ROWS])
    (tmp_path / "a.tsv").write_bytes(rows.encode())
    recipe = _read(tmp_path, generate_classification_recipe("mine", Splits(tmp_path / "a.tsv")))
    assert (recipe.data.text, recipe.data.label) == ("text", "label")


def test_new_documents_of_an_odd_table_are_refused_with_their_remedy(tmp_path):
    semicolons = _lines(tmp_path / "a.csv", ["text;label", *(row.replace("\t", ";") for row in ROWS)])
    with pytest.raises(UserError, match=r"a.csv:1: cells seem to be separated by ';'"):
        generate_language_model_recipe("mine", Splits(semicolons))
    windows = tmp_path / "b.tsv"
    rows = ["label\ttext", *("\t".join(row.split("\t")[::-1]) for row in ROWS)]
    windows.write_bytes("".join(f"{row}\r\n" for row in rows).encode())
    with pytest.raises(UserError, match=r"b.tsv:1: the header ends with a carriage return"):
        generate_language_model_recipe("mine", Splits(windows))
    few = _lines(tmp_path / "c.tsv", ["id\ttext", *(f"{n}\tthe same" for n in range(40))])
    with pytest.raises(UserError, match=r"c.tsv: text column 'text' has only 1 different value, too few"):
        generate_language_model_recipe("mine", Splits(few))


def test_new_class_of_its_own_for_each_row_is_doubted(tmp_path):
    rows = [row.replace("\t", f"\t{n}\t") for n, row in enumerate(ROWS)]
    splits = Splits(_lines(tmp_path / "a.tsv", ["text\tid\tlabel", *rows]))
    doubt = "  # 40 classes for 40 texts, fewer than 2 texts for a class: is 'id' the column of the classes?"
    assert doubt in generate_classification_recipe("mine", splits, ("text",), "id")
    assert "the column of the classes?" not in generate_classification_recipe("mine", splits, ("text",), "label")


def test_new_images_in_folders_and_in_idx_files_are_fitted(tmp_path):
    draw = np.random.default_rng(1)
    for split, count in (("train", 24), ("test", 3)):
        for kind in ("cat", "dog"):
            (tmp_path / "photos" / split / kind).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 255, (40, 50, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / "photos" / split / kind / f"{number}.png")
    recipe = _read(tmp_path, generate_image_recipe("photos", Splits(tmp_path / "photos")))
    assert (recipe.data.size, recipe.data.channels) == (32, 3)
    corpus = ImageSource(recipe.data).load()
    assert (len(corpus.train), len(corpus.validation), len(corpus.test)) == (46, 2, 6)
    alone = _read(tmp_path, generate_image_recipe("photos", Splits(tmp_path / "photos" / "train")))
    assert ImageSource(alone.data).load().train.names == ("cat", "dog")
    (tmp_path / "idx").mkdir()
    head = bytes([0, 0, 8, 3, 0, 0, 0, 40, 0, 0, 0, 28, 0, 0, 0, 28])
    (tmp_path / "idx/train-images-idx3-ubyte").write_bytes(head + draw.bytes(40 * 28 * 28))
    (tmp_path / "idx/train-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 40]) + bytes([0, 1] * 20))
    for place in ("idx", "idx/train-images-idx3-ubyte"):
        recipe = _read(tmp_path, generate_image_recipe("digits", Splits(tmp_path / place)))
        assert (recipe.data.size, recipe.data.channels, len(ImageSource(recipe.data).load().train)) == (28, 1, 36)
    with pytest.raises(UserError, match=r"nothing: there is no such folder or IDX file"):
        generate_image_recipe("mine", Splits(tmp_path / "nothing"))
    with pytest.raises(UserError, match=r"cat: has no folders of classes(.|\n)*train/cat/1.png"):
        generate_image_recipe("mine", Splits(tmp_path / "photos/train/cat"))
    Image.new("1", (14_000, 13_000)).save(tmp_path / "photos/train/cat/0.png")
    with pytest.raises(UserError, match=r"cat/0.png: cannot be read: it has 14,000 x 13,000 pixels"):
        generate_image_recipe("mine", Splits(tmp_path / "photos"))


@pytest.mark.parametrize("kind", ["little.tif", "big.tif", "grey.png", "grey.pgm"])
def test_new_images_of_16_bits_are_grey(tmp_path, kind):
    draw = np.random.default_rng(1)
    for number in range(24):
        file = tmp_path / "photos" / ("cat", "dog")[number % 2] / f"{number}-{kind}"
        file.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 2**16, (12, 12), dtype=np.uint16)
        if kind == "grey.pgm":
            file.write_bytes(b"P5 12 12 65535\n" + pixels.astype(">u2").tobytes())
        elif kind == "big.tif":
            Image.frombytes("I;16B", (12, 12), pixels.astype(">u2").tobytes()).save(file)
        else:
            Image.fromarray(pixels).save(file)
    recipe = _read(tmp_path, generate_image_recipe("photos", Splits(tmp_path / "photos")))
    assert (recipe.data.size, recipe.data.channels) == (12, 1)
    assert len(ImageSource(recipe.data).load().train) == 22


@pytest.mark.parametrize("name", [".", "..", "here/."])
def test_new_reads_a_folder_of_texts_however_it_is_named(tmp_path, monkeypatch, name):
    (tmp_path / "here" / "sub").mkdir(parents=True)
    for number in range(20):
        _lines(tmp_path / "here" / f"{number}.txt", [f"a text of {number} words"])
    monkeypatch.chdir(tmp_path / {".": "here", "..": "here/sub", "here/.": ""}[name])
    recipe = _read(tmp_path, generate_language_model_recipe("mine", Splits(Path(name))))
    assert len(DocumentSource(recipe.data).load().train) == 18


def test_new_any_file_name_is_written_so_that_it_is_read_again(tmp_path):
    odd = tmp_path / "null, [x]: #1 'ü' \"q\""
    odd.mkdir()
    files = _lines(odd / "no.en", _sentences(30)), _lines(odd / "true", _sentences(30))
    recipe = _read(tmp_path, generate_translation_recipe("mein erstes Rezept!", Splits(files, files)))
    assert recipe.data.train == recipe.data.validation == (str(files[0]), str(files[1]))
    assert (recipe.data.source, recipe.data.target, recipe.name) == ("en", "true", "mein-erstes-Rezept")
    # a file's name may be longer than a run's
    assert _read(tmp_path, generate_translation_recipe("n" * 250, Splits(files, files))).name == "n" * 200


@pytest.mark.parametrize(
    ("stem", "pattern"),
    [
        ("été", r"ete"),
        ("rezept é", r"rezept-e"),
        ("模型2", r"2-[0-9a-f]{6}"),
        ("数据 2", r"2-[0-9a-f]{6}"),
        ("模型", r"translate-[0-9a-f]{6}"),
        ("я" * 150 + "n" * 250, r"n{193}-[0-9a-f]{6}"),
    ],
)
def test_new_gives_files_in_any_script_different_names(tmp_path, stem, pattern):
    files = _lines(tmp_path / "a", _sentences(30)), _lines(tmp_path / "b", _sentences(30))
    name = _read(tmp_path, generate_translation_recipe(stem, Splits(files, files))).name
    assert re.fullmatch(pattern, name)
    assert (
        stem.isascii() or _read(tmp_path, generate_translation_recipe(f"{stem}文", Splits(files, files))).name != name
    )


def _without_spaces(count: int) -> list[tuple[str, str]]:
    """English sentences, and the same with Thai letters and no spaces."""
    thai = str.maketrans({letter: chr(0x0E01 + place) for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")})
    return [(text, text.lower().replace(" ", "").translate(thai)) for text in _sentences(count)]


def test_new_long_texts_of_single_words_have_room_for_every_target(tmp_path):
    chance, words = random.Random(3), " ".join(_sentences(200)).split()
    rows = [f"word{n}\t{' '.join(chance.choices(words, k=chance.randint(60, 300)))}" for n in range(300)]
    path = _lines(tmp_path / "pairs.tsv", ["source\ttarget", *rows])
    recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(path)))
    assert recipe.decoding.max_ratio == 2
    lengths = [len(row.split("\t")[1].split()) for row in rows]
    assert max(lengths) < recipe.decoding.max_extra <= recipe.batches.max_length


@pytest.mark.parametrize("reversed_", [False, True])
def test_new_sentences_without_spaces_are_natural_text(tmp_path, reversed_):
    rows = [pair[::-1] if reversed_ else pair for pair in _without_spaces(400)]
    table = _lines(tmp_path / "table.tsv", ["source\ttarget", *("\t".join(pair) for pair in rows)])
    text = generate_translation_recipe("mine", Splits(table))
    recipe = _read(tmp_path, text)
    assert recipe.tokenizer.kind == "unigram"
    assert recipe.model.kind == "lstm-attention"
    assert recipe.training.label_smoothing == 0.1
    assert recipe.validation.metric == ("bleu" if reversed_ else "chrf")
    assert recipe.data.filters.max_words == 250
    assert "single words" not in text
    assert "data with rules" not in text


def test_new_script_of_thousands_of_characters_gets_pieces_for_them(tmp_path):
    drawn = random.Random(1)
    chinese = ["".join(chr(0x4E00 + drawn.randrange(900)) for _ in range(drawn.randint(8, 20))) for _ in range(400)]
    table = _lines(tmp_path / "table.tsv", ["en\tzh", *map("\t".join, zip(_sentences(400), chinese, strict=True))])
    recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(table)))
    assert recipe.tokenizer.kind == "unigram"
    assert recipe.tokenizer.size > 900


def test_new_single_words_without_spaces_are_spelt(tmp_path):
    drawn = random.Random(1)
    words = ["".join(chr(0x0E01 + drawn.randrange(40)) for _ in range(drawn.randint(3, 8))) for _ in range(400)]
    table = _lines(tmp_path / "table.tsv", ["word\tphones", *(f"{word}\t{' '.join(word)}" for word in words)])
    text = generate_translation_recipe("mine", Splits(table))
    assert "texts are single words: they are spelt" in text
    assert _read(tmp_path, text).validation.metric == "exact"


@pytest.mark.parametrize(("count", "long"), [(500, 1), (500, 5), (1_500, 3)])
def test_new_translation_is_not_changed_by_a_few_endless_lines(tmp_path, count, long):
    """500 of these sentences are taken for data with rules, 1,500 for natural text."""
    rows = [f"{one}\t{one.upper()}" for one in _sentences(count)]
    endless = [f"{i} {'word ' * 4_000}\t{'wort ' * 4_000}" for i in range(long)]
    found = []
    for lines in (rows, [*rows, *endless]):
        recipe = _read(tmp_path, generate_translation_recipe("mine", Splits(_lines(tmp_path / "a.tsv", lines))))
        found.append((recipe.batches, recipe.tokenizer, recipe.model, recipe.training))
    assert found[0] == found[1]
