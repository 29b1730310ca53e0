"""A comparison's folder becomes files: figures, numbers, TensorBoard, the page; again and again the same."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from s2s.cli.compare import report
from s2s.comparison.plans import ROWS
from s2s.comparison.report.drawing import draw
from s2s.comparison.results import Result, write
from s2s.errors import UserError

ROOT = Path(__file__).parents[2]


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    return head, rows


def _same(text: str, value: str | float | None) -> bool:
    return text == ("" if value is None else value) if isinstance(value, str | None) else float(text) == value


def test_report_every_figure_has_files(drawn_folder, found):
    for result in found[1]:
        for figure in result.figures:
            for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("csv", b"label,model")):
                path = drawn_folder / result.experiment / f"{figure.name}.{kind}"
                assert path.read_bytes().startswith(start), path


def test_report_csv_of_a_curve_has_all_digits(drawn_folder, found):
    checked = 0
    for result in found[1]:
        for figure in result.figures:
            head, rows = _rows(drawn_folder / result.experiment / f"{figure.name}.csv")
            if figure.kind == "heatmaps":
                continue
            assert f"[{figure.y.unit}]" in head[4] or not figure.y.unit
            wanted = [
                [one.label, one.model, "yes" if one.reference else "no", *values]
                for one in figure.series
                for values in zip(one.x, one.y, one.low or [None] * 99, one.high or [None] * 99, strict=False)
            ]
            assert len(rows) == len(wanted)
            assert all(
                _same(*pair) for row, want in zip(rows, wanted, strict=True) for pair in zip(row, want, strict=True)
            )
            checked += len(rows)
    assert checked > 500


def test_report_csv_of_heatmaps_and_tables_has_all_values(drawn_folder, found):
    for result in found[1]:
        for figure in result.figures:
            cells = [
                [one.label, one.model, name, column, value]
                for one in figure.heatmaps
                for name, line in zip(one.rows, one.values, strict=True)
                for column, value in zip(one.columns, line, strict=True)
            ]
            if cells:
                rows = _rows(drawn_folder / result.experiment / f"{figure.name}.csv")[1]
                assert len(rows) == len(cells)
                for row, cell in zip(rows, cells, strict=True):
                    assert all(map(_same, row, cell))
        for table in result.tables:
            head, rows = _rows(drawn_folder / result.experiment / f"{table.name}.csv")
            assert head == table.columns
            assert len(rows) == len(table.rows)
            for row, cell in zip(rows, table.rows, strict=True):
                assert all(map(_same, row, cell))


def test_report_table_and_figure_of_one_name_have_two_files(saved, found):
    result = found[1][0]
    table = result.tables[0].model_copy(update={"name": "depth"})
    write(result.model_copy(update={"tables": [table]}), saved / "parallelism" / "result.json")
    draw(saved)
    assert _rows(saved / "parallelism" / "depth-table.csv")[0] == table.columns
    assert _rows(saved / "parallelism" / "depth.csv")[0][0] == "label"


def test_report_drawn_again_has_the_same_bytes(drawn_folder, tmp_path):
    kinds = ("*.html", "*/*.svg", "*/*.csv", "*/*.png", "*/*.pdf")
    once = {path.relative_to(drawn_folder): path.read_bytes() for kind in kinds for path in drawn_folder.glob(kind)}
    assert len(once) == 1 + 4 * 9 + 1
    shutil.copytree(drawn_folder, tmp_path / "other")
    for path in once:
        (tmp_path / "other" / path).unlink()
    draw(tmp_path / "other")
    assert {path: (tmp_path / "other" / path).read_bytes() for path in once} == once
    assert not list((tmp_path / "other").rglob(".*"))
    # rewritten, not added to
    assert len(list((tmp_path / "other" / "tensorboard").iterdir())) == 1


def test_tensorboard_has_figures_curves_and_the_table(drawn_folder, found):
    board = EventAccumulator(str(drawn_folder / "tensorboard"), {"images": 0, "scalars": 0})
    board.Reload()
    figures = {f"{result.experiment}/{figure.name}" for result in found[1] for figure in result.figures}
    assert set(board.Tags()["images"]) == figures
    first = board.Images("long-range/recall")[0]
    assert (first.width, first.height) > (900, 300)
    assert first.encoded_image_string == (drawn_folder / "long-range" / "recall.png").read_bytes()
    recall = next(f for f in found[1][1].figures if f.name == "recall")
    for one in recall.series:
        points = [(event.step, event.value) for event in board.Scalars(f"long-range/recall/{one.label}")]
        assert [step for step, _ in points] == one.x
        assert [value for _, value in points] == pytest.approx(one.y, rel=1e-6, abs=1e-9)
    for finding in found[1][1].findings:
        tag = f"classroom table/{finding.row}/{finding.model}"
        assert [event.value for event in board.Scalars(tag)] == [finding.value]


def test_tensorboard_steps_are_distinct(saved, found):
    result = found[1][0]
    figure = result.figures[0]
    one = figure.series[0].model_copy(update={"x": [n / 10 for n in range(7)]})
    changed = figure.model_copy(update={"series": [one], "x": figure.x.model_copy(update={"log": False})})
    write(result.model_copy(update={"figures": [changed]}), saved / "parallelism" / "result.json")
    draw(saved)
    board = EventAccumulator(str(saved / "tensorboard"))
    board.Reload()
    assert [e.step for e in board.Scalars(f"parallelism/{figure.name}/{one.label}")] == list(range(7))


def test_report_of_an_unfinished_comparison_names_the_rest(saved):
    page = draw(saved).read_text(encoding="utf-8")
    assert "No results yet for: long-range, quality, gradients." in page
    assert "Fitted exponents" in page


def test_report_includes_questions_that_were_not_asked(saved, found):
    result = found[1][2].model_copy(update={"experiment": "memory", "findings": [], "figures": found[1][2].figures[:1]})
    (saved / "memory").mkdir()
    write(result, saved / "memory" / "result.json")
    page = draw(saved).read_text(encoding="utf-8")
    assert 'id="experiment-memory"' in page
    assert 'id="figure-memory-scores"' in page


def test_report_without_measurements_is_a_page(saved, found):
    (saved / "parallelism" / "result.json").unlink()
    write(found[0].model_copy(update={"contenders": [], "machine": {}}), saved / "comparison.json")
    page = draw(saved).read_text(encoding="utf-8")
    assert page.count("not finished</td>") == sum(row.experiment in found[0].experiments for row in ROWS.values())
    assert "Learning rates are not chosen yet" in page


def test_report_refuses_a_folder_without_a_comparison(tmp_path):
    with pytest.raises(UserError, match="no such folder"):
        draw(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no comparison\.json\n.*s2s compare"):
        draw(tmp_path)


def _broken(result: Result, how: str) -> str:
    data = json.loads(result.model_dump_json())
    if how == "lengths":
        data["figures"][0]["series"][0]["y"].pop()
    elif how == "ends":
        data["figures"][0]["series"][0]["high"].pop()
    elif how == "twice":
        data["figures"].append(data["figures"][0])
    elif how == "matrix":
        data["figures"][0] |= {
            "kind": "heatmaps",
            "heatmaps": [{"label": "", "model": "", "rows": ["a"], "columns": ["b"], "values": [[1.0, 2.0]]}],
        }
    elif how == "table":
        data["tables"][0]["rows"][0].pop()
    elif how == "other":
        data["experiment"] = "quality"
    elif how == "format":
        data["format"] = 0
    return json.dumps(data)


@pytest.mark.parametrize("how", ["lengths", "ends", "twice", "matrix", "table", "other", "format"])
def test_report_names_a_damaged_result(saved, found, how):
    path = saved / "parallelism" / "result.json"
    path.write_text(_broken(found[1][0], how), encoding="utf-8")
    with pytest.raises(UserError, match="run the comparison again") as error:
        draw(saved)
    assert error.value.where == str(path)


@pytest.mark.parametrize("content", [b"", b'{"format": 1', b"\xff\xfe\x00"], ids=["empty", "cut", "no text"])
@pytest.mark.parametrize("name", ["comparison.json", "parallelism/result.json"])
def test_report_names_a_truncated_file(saved, name, content):
    (saved / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        draw(saved)
    assert error.value.where == str(saved / name)
    assert ": :" not in str(error.value)


def test_report_command_prints_the_path(saved):
    done = CliRunner().invoke(report, [str(saved)])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == str(saved / "report.html")
    assert done.output.startswith("yes         1  In training, a recurrent network waits")


def test_report_needs_no_torch(saved):
    code = (
        "import sys; from pathlib import Path; from s2s.comparison.report.drawing import draw; draw(Path(sys.argv[1]));"
        "print([m for m in ('torch', 'tensorflow', 'matplotlib.pyplot', 'scipy', 's2s.run', 's2s.models')"
        " if m in sys.modules])"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
