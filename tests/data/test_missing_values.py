"""Labels and texts that look like missing values are reported with counts."""

import numpy as np
import pandas
import pytest

from s2s.data.data_check import note_suspicious
from s2s.data.labels import missing_label_lines
from s2s.run.tasks import read
from s2s.tasks.classification.data import prepare_texts
from s2s.tasks.classification.diagnosis import inspected
from s2s.tasks.classification.recipe_generation import generate_classification_recipe
from s2s.tasks.language_model.recipe_generation import generate_language_model_recipe
from s2s.tasks.recipe_generation import Splits
from s2s.tasks.translation.prepared import prepare
from s2s.tasks.translation.recipe_generation import generate_translation_recipe

WARNING = "training texts have the label 'nan', which looks like a missing label (because of it, pandas writes the"


@pytest.mark.parametrize("label", ["nan", "NaN", "N/A", "NA", "null", "None", "<NA>", "#N/A"])
def test_missing_label_lines_name_count_and_remedy(label):
    (line,) = missing_label_lines({"neg": 5, label: 4}, "texts")
    assert line.startswith(f"4 texts have the label {label!r}, which looks like a missing label: remove these rows")
    assert f'data.classes=["neg", "{label}"]' in line


def test_missing_label_lines_pass_usual_labels():
    assert missing_label_lines({"none": 3, "neutral": 2, "0": 1, "nan": 0}, "texts") == []


def test_new_check_and_training_warn_of_missing_labels_unless_declared(tmp_path):
    labels = [np.nan if n % 20 == 7 else float(n % 2) for n in range(80)]
    frame = pandas.DataFrame({"text": [f"text number {n}" for n in range(80)], "label": labels})
    frame.to_csv(tmp_path / "a.csv", index=False, na_rep="nan")
    text = generate_classification_recipe("a", Splits(tmp_path / "a.csv"))
    assert f"  # 2 {WARNING}" in text
    (tmp_path / "a.yaml").write_text(text)
    recipe, said = read(tmp_path / "a.yaml"), []
    assert f"  - 2 {WARNING}" in inspected(recipe)
    prepare_texts(recipe, None, said.append)
    assert said[0].startswith(f"2 {WARNING}")
    declared = read(tmp_path / "a.yaml", ['data.classes=["0.0", "1.0", "nan"]'])
    assert "looks like a missing label" not in inspected(declared)


def test_new_and_training_warn_of_pairs_with_missing_values(tmp_path):
    rows = [f"source number {n}\t{'nan' if n % 20 == 7 else f'target number {n}'}" for n in range(80)]
    (tmp_path / "a.tsv").write_text("source\ttarget\n" + "\n".join(rows) + "\n")
    text = generate_translation_recipe("a", Splits(tmp_path / "a.tsv"))
    assert "pairs have 'nan' or the like as a text" in text
    (tmp_path / "a.yaml").write_text(text)
    said: list[str] = []
    prepare(read(tmp_path / "a.yaml"), None, said.append)
    assert any("training pairs have 'nan' or the like as a text, which looks like a missing" in line for line in said)


def test_new_warns_of_documents_with_missing_values(tmp_path):
    rows = ["nan" if n == 7 else f"document number {n}" for n in range(80)]
    pandas.DataFrame({"text": rows}).to_csv(tmp_path / "a.csv", index=False)
    text = generate_language_model_recipe("a", Splits(tmp_path / "a.csv", tmp_path / "a.csv", tmp_path / "a.csv"))
    assert "document has 'nan' as a text, which looks like a missing value" in text
    (tmp_path / "a.yaml").write_text(text)
    assert read(tmp_path / "a.yaml").data.text == "text"


def test_note_suspicious_finds_missing_values_as_whole_texts():
    found: dict[str, list[int]] = {}
    for row, texts in enumerate([("a nan", "b"), ("c", "nan"), ("NA", "d"), ("", "e")], start=1):
        note_suspicious(found, row, *texts)
    assert found == {"missing value as a text (nan, NA, None …)": [2, 3]}


def test_line_ends_of_windows_are_said_by_new_and_by_training(tmp_path):
    rows = [f"{n} birds\t{n} Vögel" for n in range(300)]
    said = []
    for end in ("\n", "\r\n"):
        (tmp_path / "a.tsv").write_bytes("".join(row + end for row in rows).encode())
        recipe = generate_translation_recipe("mine", Splits(tmp_path / "a.tsv"))
        (tmp_path / "mine.yaml").write_text(recipe)
        told: list[str] = []
        prepare(read(tmp_path / "mine.yaml"), None, told.append)
        said.append(
            ("carriage return" in recipe, any("most training pairs end with a carriage" in line for line in told))
        )
    assert said == [(False, False), (True, True)]
