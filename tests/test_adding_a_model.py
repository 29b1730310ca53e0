"""docs/adding-a-model.md: a stranger's package, built from the page, installed, trained and put to the contract."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding-a-model.md"
BRIEF = (
    "data.train=300 data.validation=8 data.test=8 tokenizer.size=450 training.updates=6 training.warmup=2 "
    "validation.every=3 validation.sentences=3 batches.tokens=600"
)


def test_the_package_on_the_page_is_listed_trains_and_keeps_the_contract(tmp_path):
    page = PAGE.read_text(encoding="utf-8")
    files = re.findall(r"`(bag/\S+)`:\n\n```\w+\n(.*?)```", page, flags=re.DOTALL)
    assert [name for name, _ in files] == ["bag/pyproject.toml", "bag/bag_model.py", "bag/bag_network.py"]
    (tmp_path / "bag").mkdir()
    for name, text in files:
        (tmp_path / name).write_text(text)
    for folder in ("recipes", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(tmp_path / "site"),
        "HF_HUB_OFFLINE": "1",
    }
    (block,) = re.findall(r"```sh\n(.*?)```", page, flags=re.DOTALL)
    outputs = {}
    for command in block.strip().split("\n"):
        # beside the environment of the tests, not into it
        run = command.replace("pip install", "pip install -q --no-deps --no-build-isolation --target site")
        run += f" {BRIEF}" if command.startswith("s2s train") else " -q -p no:cacheprovider" * ("pytest" in command)
        done = subprocess.run(
            run, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
        outputs[command.split()[0] + command.split()[1]] = done.stdout
    assert re.search(r"^bag +bag-model +A bag of words in", outputs["s2smodels"], flags=re.MULTILINE)
    assert int(re.findall(r"(\d+) passed", outputs["pytesttests/models"])[0]) >= 10
