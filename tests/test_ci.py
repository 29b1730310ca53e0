"""Files of the repository's host: the workflow names what exists, templates are forms, one address everywhere."""

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOW = YAML(typ="safe").load(ROOT / ".github/workflows/ci.yml")
SCRIPTS = sorted((ROOT / ".ci").iterdir())
MARKERS = {marker.partition(":")[0] for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}


def _commands(text: str) -> list[list[str]]:
    """The commands of a script, a line each, without comments."""
    lines = re.sub(r"\\\n\s*", "", text).split("\n")
    return [words for words in (shlex.split(line, comments=True) for line in lines if "<<" not in line) if words]


def _check_pytest(words: list[str]) -> None:
    if "pytest" not in words:
        return
    options = words[words.index("pytest") :]
    assert "-m" not in options or options[options.index("-m") + 1] in MARKERS, words
    paths = [word for word in words if word.startswith("tests/")]
    assert all((ROOT / path).exists() for path in paths), paths


def test_ci_workflow_runs_scripts_tests_and_markers_that_exist():
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    called = {step["run"].split()[0] for step in steps if "run" in step}
    assert called == {f".ci/{path.name}" for path in SCRIPTS} | {"python"}
    for step in steps:
        assert ("uses" in step) != ("run" in step)
        assert re.fullmatch(r"actions/[\w-]+@v\d+", step.get("uses", "actions/none@v1"))
        for words in _commands(step.get("run", "")):
            _check_pytest(words)
    for job in WORKFLOW["jobs"].values():
        assert job["steps"][0]["uses"].startswith("actions/checkout@")
        assert job["timeout-minutes"] <= 120


def test_ci_workflow_covers_the_oldest_and_the_newest_versions():
    matrix = WORKFLOW["jobs"]["versions"]["strategy"]["matrix"]
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert matrix["python"][0] == oldest
    stated = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    assert {*stated} <= {*matrix["python"]}
    (torch,) = (
        each.removeprefix("torch>=") for each in PROJECT["project"]["dependencies"] if each.startswith("torch>=")
    )
    assert matrix["torch"] == [f"torch=={torch}.*", "torch"]
    assert {*WORKFLOW["jobs"]["systems"]["strategy"]["matrix"]["system"]} == {"macos-latest", "windows-latest"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_ci_script_is_executable_and_names_files_that_exist(script):
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    text = script.read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n")
    assert "\nset -euo pipefail\n" in text
    for words in _commands(text.partition("<<'PROGRAM'")[0] + text.partition("\nPROGRAM\n")[2]):
        _check_pytest(words)
    assert all((ROOT / name).is_file() for name in re.findall(r"[\w-]+\.lock", text))


def test_ci_issue_templates_are_forms():
    folder = ROOT / ".github/ISSUE_TEMPLATE"
    for name in ("bug", "feature"):
        form = YAML(typ="safe").load(folder / f"{name}.yml")
        assert form["name"]
        assert form["description"]
        fields = [field for field in form["body"] if field["type"] == "textarea"]
        assert len({field["id"] for field in fields}) == len(fields) == len(form["body"])
        assert all(field["attributes"]["label"] for field in fields)
    config = YAML(typ="safe").load(folder / "config.yml")
    assert all({*link} == {"name", "url", "about"} for link in config["contact_links"])


def test_ci_address_of_the_repository_is_the_one_of_pyproject_everywhere():
    urls = PROJECT["project"]["urls"]
    address = urls["Repository"]
    assert all(url.startswith(address) for url in urls.values())
    for file in ("README.md", ".github/ISSUE_TEMPLATE/config.yml", "CONTRIBUTING.md"):
        found = re.findall(r"https://github\.com/[\w-]+/s2s\b", (ROOT / file).read_text(encoding="utf-8"))
        assert {*found} <= {address}, file
    assert f"git clone {address} " in (ROOT / "README.md").read_text(encoding="utf-8")
