"""Header lines, row indices and quoted cells of tables are detected and recorded."""

import csv

import pandas
import pytest

from s2s.data.pairs import load
from s2s.data.text_files import Columns, check_no_header, is_header, is_quoted, table_cells
from s2s.errors import UserError
from s2s.run.tasks import read
from s2s.tasks.captioning.data import captions_of
from s2s.tasks.captioning.recipe import CaptionDataSettings
from s2s.tasks.classification.data import LabelledSource
from s2s.tasks.classification.recipe import LabelledSettings
from s2s.tasks.classification.recipe_generation import generate_classification_recipe
from s2s.tasks.language_model.data import DocumentSource
from s2s.tasks.language_model.recipe_generation import generate_language_model_recipe
from s2s.tasks.recipe_generation import Splits
from s2s.tasks.translation.recipe_generation import generate_translation_recipe

TEXTS = [f'She said "number {n}", and left.' if n % 3 else f"Plain number {n}" for n in range(60)]
FRAME = pandas.DataFrame({"text": TEXTS, "label": [("neg", "pos")[n % 2] for n in range(60)]})
PAIRS = pandas.DataFrame({"en": TEXTS, "de": [text.upper() for text in TEXTS]})


def _recipe(folder, text: str):
    (folder / "new.yaml").write_text(text, encoding="utf-8")
    return read(folder / "new.yaml")


def _texts(corpus, column) -> list[str]:
    return sorted(text for part in corpus.splits().values() for text in column(part))


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_table_layout_row_index_of_pandas_is_no_column_of_labelled_texts_or_pairs(tmp_path, ending):
    separator = {"csv": ",", "tsv": "\t"}[ending]
    FRAME.to_csv(tmp_path / f"a.{ending}", sep=separator)
    recipe = _recipe(tmp_path, generate_classification_recipe("a", Splits(tmp_path / f"a.{ending}")))
    assert (recipe.data.text, recipe.data.label) == ("text", "label")
    corpus = LabelledSource(recipe.data).load()
    assert corpus.train.names == ("neg", "pos")
    assert _texts(corpus, lambda part: part.texts["text"]) == sorted(TEXTS)
    PAIRS.to_csv(tmp_path / f"p.{ending}", sep=separator)
    recipe = _recipe(tmp_path, generate_translation_recipe("p", Splits(tmp_path / f"p.{ending}")))
    assert (recipe.data.source, recipe.data.target) == ("en", "de")
    assert _texts(load(recipe.data), lambda part: part["source"]) == sorted(TEXTS)


def test_table_layout_row_index_of_pandas_is_no_column_of_documents(tmp_path):
    FRAME.rename(columns={"text": "utterance"})[["utterance"]].to_csv(tmp_path / "a.csv")
    text = generate_language_model_recipe("a", Splits(tmp_path / "a.csv"))
    assert "its first line names the columns" in text
    recipe = _recipe(tmp_path, text)
    assert recipe.data.text == "utterance"
    assert _texts(DocumentSource(recipe.data).load(), lambda part: part["text"]) == sorted(TEXTS)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (["", "text", "label"], [], True),
        (["", "utterance", "verdict"], ["0", "Hello.", "good"], True),
        (["", "utterance", "verdict"], ["", "Hello.", "good"], False),
        (["review_text", "stars"], [], True),
        (["English", "German"], [], True),
        (["Go.", "Geh."], ["Hi.", "Hallo!"], False),
        (["0", "a text"], ["1", "a text"], False),
    ],
)
def test_table_layout_is_header(first, second, expected):
    assert is_header(first, second) is expected


def test_table_layout_header_line_is_refused_where_columns_are_given_by_position(tmp_path):
    FRAME.to_csv(tmp_path / "a.csv")
    with pytest.raises(UserError, match=r"a.csv:1: the first line names the columns: 'text', 'label'"):
        generate_classification_recipe("a", Splits(tmp_path / "a.csv"), ("1",), "2")
    settings = LabelledSettings(text="1", label="2", train=str(tmp_path / "a.csv"), validation=2, test=None)
    with pytest.raises(UserError, match=r"a.csv:1: the first line names the columns"):
        LabelledSource(settings).load()
    odd = FRAME.rename(columns={"text": "utterance", "label": "verdict"})
    odd.to_csv(tmp_path / "odd.csv")
    with pytest.raises(UserError, match=r"odd.csv:1: the first line names the columns: 'utterance', 'verdict'"):
        generate_classification_recipe("a", Splits(tmp_path / "odd.csv"), ("1",), "2")
    # unusual names without an index: the label of the header occurs once
    odd.to_csv(tmp_path / "bare.csv", index=False)
    with pytest.raises(UserError, match=r"bare.csv:1: the first line has the only label 'verdict'"):
        generate_classification_recipe("a", Splits(tmp_path / "bare.csv"), ("0",), "1")
    PAIRS.to_csv(tmp_path / "p.csv")
    with pytest.raises(UserError, match=r"p.csv:1: the first line names the columns: 'en', 'de'"):
        generate_translation_recipe("p", Splits(tmp_path / "p.csv"), "1", "2")


def test_table_layout_check_no_header_lets_examples_pass():
    check_no_header(["hi", "hola"], [0, 1], "t.tsv:1")
    check_no_header(["A text.", "label"], [0, 1], "t.tsv:1")


def _written(frame: pandas.DataFrame, **options) -> list[str]:
    return frame.to_csv(sep="\t", index=False, **options).splitlines()


def _excel(rows: list[list[str]]) -> list[str]:
    """Tab-delimited text as Excel saves it: cells with a comma are wrapped, too."""
    cells = [['"' + cell.replace('"', '""') + '"' if {*'",'} & {*cell} else cell for cell in row] for row in rows]
    return ["\t".join(row) + "\r" for row in cells]


def test_table_layout_is_quoted_finds_what_pandas_and_excel_write():
    plain = FRAME.assign(text=[f"Number, {n}" for n in range(60)])
    assert is_quoted(_written(FRAME))
    assert is_quoted(_written(plain, quoting=csv.QUOTE_ALL))
    assert is_quoted(_written(plain, quoting=csv.QUOTE_NONNUMERIC))
    assert is_quoted(_excel([list(FRAME.columns), *FRAME.to_numpy().tolist()]))
    assert is_quoted(_excel([list(plain.columns), *plain.to_numpy().tolist()]))
    several = FRAME.assign(text=[f'Line "{n}"\nnext line' for n in range(60)])
    assert is_quoted(_written(several))


@pytest.mark.parametrize(
    "lines",
    [
        ['She said "yes".\tSie sagte "ja".', 'He said "no".\tEr sagte "nein".'],
        ['"Yes", she said.\t„Ja“, sagte sie.', '"No."\t"Nein."'],
        ['"Yes."\t"Ja."', "Go.\tGeh.", "Well, go.\tNa, geh."],
        ['a 5" disk\t1', 'a 3" disk\t2'],
        ['"Come here.\t"Komm her.', 'I wait."\tIch warte."'],
        ['""Yes""\tx', "no\ty"],
        ['{"a": "b"}\tx', '{"a": ""}\ty'],
        ["Go.\tGeh."],
        [],
        ['"Yes."\tJa.'],
    ],
)
def test_table_layout_texts_that_merely_contain_quotes_keep_them(tmp_path, lines):
    assert not is_quoted(lines)
    (tmp_path / "a.tsv").write_text("".join(f"{line}\n" for line in lines))
    rows = [cells for _, cells in table_cells(tmp_path / "a.tsv", Columns(("0", "1"), "columns"))]
    assert rows == [line.split("\t") for line in lines]


@pytest.mark.parametrize("quoting_style", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
@pytest.mark.parametrize("name", ["a.tsv", "a.txt"])
def test_table_layout_quoted_tsv_is_unquoted_by_a_recipe_that_says_so(tmp_path, quoting_style, name):
    path = tmp_path / name
    FRAME.to_csv(path, sep="\t", index=False, quoting=quoting_style)
    text = generate_classification_recipe("a", Splits(path))
    assert "quoting: csv # its cells are quoted as in a CSV" in text
    recipe = _recipe(tmp_path, text)
    corpus = LabelledSource(recipe.data).load()
    assert corpus.train.names == ("neg", "pos")
    assert _texts(corpus, lambda part: part.texts["text"]) == sorted(TEXTS)
    PAIRS.to_csv(path, sep="\t", index=False, quoting=quoting_style)
    recipe = _recipe(tmp_path, generate_translation_recipe("p", Splits(path)))
    assert recipe.data.quoting == "csv"
    assert _texts(load(recipe.data), lambda part: part["source"]) == sorted(TEXTS)


def test_table_layout_quoted_tsv_of_documents_is_unquoted(tmp_path):
    FRAME.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    recipe = _recipe(tmp_path, generate_language_model_recipe("a", Splits(tmp_path / "a.tsv")))
    assert recipe.data.quoting == "csv"
    assert _texts(DocumentSource(recipe.data).load(), lambda part: part["text"]) == sorted(TEXTS)


def test_table_layout_quoted_tsv_is_refused_until_a_recipe_decides(tmp_path):
    FRAME.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    settings = LabelledSettings(train=str(tmp_path / "a.tsv"), validation=2, test=None)
    for _ in range(2):
        kept = LabelledSource(settings.model_copy(update={"quoting": "none"})).load()
        assert _texts(kept, lambda part: part.texts["text"])[0].startswith('"She said ""number')
        # what was read with `none` is no answer to a recipe that does not decide
        with pytest.raises(UserError, match=r"a.tsv: cells are quoted as in a CSV(.|\n)*data.quoting=csv"):
            LabelledSource(settings).load()
    unquoted = LabelledSource(settings.model_copy(update={"quoting": "csv"})).load()
    assert _texts(unquoted, lambda part: part.texts["text"]) == sorted(TEXTS)


def test_table_layout_quoted_tsv_of_captions_is_read_as_its_recipe_says(tmp_path):
    frame = pandas.DataFrame({"image": [f"{n}.png" for n in range(60)], "caption": TEXTS})
    frame.to_csv(tmp_path / "a.tsv", sep="\t")
    with pytest.raises(UserError, match="cells are quoted as in a CSV"):
        captions_of(tmp_path / "a.tsv", CaptionDataSettings(corpus="files"))
    table = captions_of(tmp_path / "a.tsv", CaptionDataSettings(corpus="files", quoting="csv"))
    assert [rows[0].caption for rows in table.values()] == TEXTS
