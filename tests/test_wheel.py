"""The wheel contains everything and works when installed elsewhere."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

import s2s

ROOT = Path(__file__).parents[1]
# what is installed under another name than it has here
MOVED = {"recipes": "s2s/recipes"}


def _tree() -> set[str]:
    """All files of the packages, as a wheel names them."""
    found = set()
    for room in ("s2s", "baselines", *MOVED):
        for path in (ROOT / room).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                found.add(str(Path(MOVED.get(room, room)) / path.relative_to(ROOT / room)))
    return found


def test_wheel_every_file_of_the_tree_is_of_a_package_that_is_installed():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {name.replace(".", "/"): name for name in tools["packages"]}
    listed = set()
    for file in _tree():
        package = folders.get(str(Path(file).parent))
        # data may lie below a package, in a folder of its own
        above = [(folder, name) for folder, name in folders.items() if file.startswith(f"{folder}/")]
        patterns = [(folder, glob) for folder, name in above for glob in tools["package-data"].get(name, [])]
        patterns += [(folder, glob) for folder, _ in above for glob in tools["package-data"]["*"]]
        if (package and file.endswith(".py")) or any(fnmatch(file, f"{folder}/{glob}") for folder, glob in patterns):
            listed.add(file)
    assert _tree() - listed == set()
    assert {str(Path(file).parent) for file in listed} >= set(folders)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    if find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    # a build leaves files beside its sources
    kept = shutil.ignore_patterns("__pycache__", ".git", "build", "*.egg-info", "docs", "tests", "runs")
    shutil.copytree(ROOT, folder / "tree", ignore=kept)
    command = [sys.executable, "-c", f"import setuptools.build_meta as b; print(b.build_wheel({str(folder)!r}))"]
    done = subprocess.run(command, cwd=folder / "tree", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.mark.slow
def test_wheel_has_what_the_tree_has(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == _tree()


@pytest.mark.slow
@pytest.mark.parametrize("words", [("twine", "check", "--strict"), ("check_wheel_contents",)])
def test_those_who_check_wheels_find_nothing(wheel, words):
    if find_spec(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    command = [sys.executable, "-m", *words, str(wheel)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_wheel_installed_elsewhere_it_finds_its_recipes_and_models_and_trains(wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "new"], check=True)
    (packages,) = (tmp_path / "new").glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # what it needs comes from here, but s2s itself does not
    others = [p for p in sys.path if p.endswith("-packages") or (Path(p) / "torch").is_dir()]
    (packages / "others.pth").write_text("\n".join(p for p in others if not (Path(p) / "s2s/__init__.py").exists()))

    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}

    def python(*words: str) -> str:
        """What the new environment's Python says, in a folder of its own."""
        command = [tmp_path / "new/bin/python", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    s2s = partial(python, "-m", "s2s")
    places = python("-c", "import s2s, baselines, s2s.serving; print(s2s.__file__, baselines.__file__)").split()
    assert all(place.startswith(str(packages)) for place in places)
    listed = s2s("recipe", "list")
    assert all(recipe.stem in listed for recipe in (ROOT / "recipes").glob("*.yaml"))
    assert all(kind in s2s("recipe", "models") for kind in ("transformer", "lstm-attention", "mingru", "conv"))
    small = "data.train=300 data.validation=8 data.test=8 tokenizer.size=450 model.width=16 training.updates=4"
    small += " training.warmup=2 validation.every=4 decoding.max_ratio=0.5 device.precision=fp32 device.threads=1"
    s2s("train", "translate", *small.split())
    (tmp_path / "lines.txt").write_text("A dog runs.\n")
    assert len(s2s("translate", "runs/translate", "--input", "lines.txt").splitlines()) == 1
    s2s("inspect", "runs/translate", "A dog.", "--output", "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_citation_names_the_version_of_the_package():
    assert f"\nversion: {s2s.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
