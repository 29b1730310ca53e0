"""Fixtures of all tests: shape checks, temporary caches, real data in S2S_DATA."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jaxtyping import config, install_import_hook

ROOT = Path(__file__).parents[1]

# before torch or datasets are imported, here or in a process that a test starts
os.environ["HF_HUB_OFFLINE"] = "1"
if "S2S_TEST_DEVICE" not in os.environ:
    # a GPU would be every recipe's choice, and what is compared here to the last bit is a processor's
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
# test processes beside each other share the cores, and threads that spin while they wait take them from each other;
# plugins have imported numpy by now, so its threads are those that the first process names for the others
os.environ["OPENBLAS_NUM_THREADS"] = "1"
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
# many processes load the same modules; each would compile them again, and rewrite their assertions
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if os.environ.get("S2S_NO_SHAPE_CHECKS") != "1":
    # the rooms of tensors; elsewhere beartype refuses what pyright allows, such as an int for a float
    install_import_hook(["s2s.nn", "s2s.models", "s2s.decoding", "s2s.training", "baselines"], "beartype.beartype")


# Tests that train whole models: shapes are not checked and pictures not drawn.
WHOLE_TRAININGS = ("api", "cli", "compare", "data/test_source_use", "decoding/test_translator", "devices", "docs")
WHOLE_TRAININGS += ("export", "faults", "models/test_contract_training", "run", "training/test_precision")
WHOLE_TRAININGS += ("training/test_trainer",)
# Shape checks take half of the time: they are on where every model, layer and loss has its tests.
SHAPES_CHECKED = ("baselines", "decoding/test_answers", "models", "nn", "training")


def _whole(path: Path) -> bool:
    return path.relative_to(ROOT / "tests").as_posix().startswith(WHOLE_TRAININGS)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without garbage collection, and leave what is loaded by then out of all later ones."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # every test makes models and arrays by the thousand; the default collects after each 700 objects
        gc.set_threshold(20_000, 20, 50)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    # around module fixtures, too, which train what several tests look at
    whole = _whole(item.path)
    checked = item.path.relative_to(ROOT / "tests").as_posix().startswith(SHAPES_CHECKED) and not whole
    config.update("jaxtyping_disable", not checked)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if whole and "painted" not in getattr(item, "fixturenames", ()):
                _quicken(patch)
            return (yield)
    finally:
        config.update("jaxtyping_disable", False)


def _quicken(patch: pytest.MonkeyPatch) -> None:
    """Let trainings draw no figures, sync no files, and compute in fp32 without a benchmark."""
    from s2s.training.precision import PrecisionBenchmark

    dot = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1"
    patch.setattr("s2s.training.figures.attention_picture", lambda *given: None)
    patch.setattr("s2s.training.figures.render_png", lambda figure: dot)
    patch.setattr("s2s.files._sync", lambda path: None)
    patch.setattr(
        "s2s.training.precision.benchmark_precision", lambda trainer: PrecisionBenchmark(fp32=1, bf16=2, threads=1)
    )


@pytest.fixture(autouse=True, scope="session")
def _hears_signals() -> None:
    """Shells and nohup have signals ignored for what they run in the background, and whoever is started inherits it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Windows has no SIGHUP
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _all_numbers() -> Iterator[None]:
    """What a test prepares for training flushes the smallest numbers to zero; the next one has them again."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture
def painted() -> None:
    """Requested by a test whose training draws real figures."""


@pytest.fixture(scope="session", autouse=True)
def _temporary_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    import datasets

    cache = tmp_path_factory.mktemp("cache")
    datasets.config.HF_DATASETS_CACHE = cache
    os.environ["HF_DATASETS_CACHE"] = str(cache)


@pytest.fixture(scope="session")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recipes `t.yaml`, `c.yaml` and `m.yaml`, and in `runs/` a run of each that has hardly learned anything."""
    from tests.faults.world import make_world

    return make_world(tmp_path_factory.mktemp("small") / "world", "tcm")


@pytest.fixture(scope="session")
def device():
    """The device that S2S_TEST_DEVICE names, for the tests that compute the same anywhere; a processor otherwise.

    One that is named computes with the kernels that the commands use.
    """
    import torch

    if "S2S_TEST_DEVICE" in os.environ:
        from s2s.recipe.schema import DeviceSettings
        from s2s.training.device import setup_process

        setup_process(DeviceSettings())
    return torch.device(os.environ.get("S2S_TEST_DEVICE", "cpu"))


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora; tests are skipped where there is none."""
    return _real(".")


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder with Multi30k's files."""
    return _real("multi30k")


@pytest.fixture(scope="session")
def tatoeba() -> Path:
    """The folder with Tatoeba's English-German tables."""
    return _real("tatoeba")


def _real(name: str) -> Path:
    folder = Path(os.environ.get("S2S_DATA", ROOT.parent / "shared" / "data")) / name
    if not folder.is_dir():
        pytest.skip(f"S2S_DATA has no {name}: {folder}")
    return folder
