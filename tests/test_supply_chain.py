"""Lock files, licences and SECURITY.md agree with constraints.txt and installed packages."""

import re
import shlex
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from benchmarks import licenses
from benchmarks.licenses import LOCKS, license_of, pins

ROOT = Path(__file__).parents[1]
CUDA = "requirements-cuda.lock"


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_supply_chain_lock_files_have_the_versions_of_constraints():
    user, development = (pins(lock) for lock in LOCKS)
    assert not set(user) & set(development)
    assert user | development == pins("constraints.txt")
    assert not set(pins(CUDA)) & set(pins("constraints.txt"))


@pytest.mark.parametrize("lock", [*LOCKS, CUDA])
def test_supply_chain_every_pin_of_a_lock_file_has_hashes(lock):
    text = re.sub(r"^#.*\n", "", _read(lock), flags=re.MULTILINE).replace("\\\n", "")
    for line in text.splitlines():
        pin, *hashes = shlex.split(line)
        assert re.fullmatch(r"[\w.-]+==[\w.]+", pin)
        assert hashes, pin
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), pin


def test_supply_chain_every_package_has_its_licence():
    rows, locked = licenses.rows(), {name for lock in LOCKS for name in pins(lock)}
    assert set(rows) == locked
    assert not [name for name, (stated, _) in rows.items() if "not " in stated]
    for name, pinned in pins("constraints.txt").items():
        try:
            same = version(name).partition("+")[0] == pinned
        except PackageNotFoundError:
            continue
        assert not same or license_of(name) == rows[name][0], f"{name}: run python -m benchmarks.licenses"


def test_supply_chain_packages_with_other_terms_are_named():
    (named,) = re.findall(r"^\| MPL-2.0 \| (.*) \| .* \|$", _read(licenses.PAGE), flags=re.MULTILINE)
    weak = {name for name, (stated, _) in licenses.rows().items() if "MPL" in stated}
    assert {"certifi", "tqdm", "hypothesis"} <= weak
    assert weak == {name for name in weak if name in named}
    others = {name for name, (stated, _) in licenses.rows().items() if "GPL" in stated}
    assert others == {"docutils"}


def test_supply_chain_commands_of_security_name_files_that_exist():
    named = re.findall(r"-r (\S+)", _read("SECURITY.md")) + re.findall(r"\]\(([\w./-]+)\)", _read("SECURITY.md"))
    assert named
    assert all((ROOT / name).is_file() for name in named)


def test_supply_chain_readme_installs_the_cpu_build_of_the_pinned_torch():
    """Another version would be replaced by PyPI's build with CUDA, because constraints.txt pins one."""
    (named,) = re.findall(r"^pip install torch==(\S+) --index-url", _read("README.md"), flags=re.MULTILINE)
    assert named == pins("constraints.txt")["torch"]
