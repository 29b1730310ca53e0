"""Shapes are checked in the fast tests; caches are temporary; real data is found through S2S_DATA."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

os.environ["HF_HUB_OFFLINE"] = "1"
if os.environ.get("S2S_SHAPE_CHECKS", "1") == "1":
    from jaxtyping import install_import_hook

    install_import_hook(["s2s.nn", "s2s.models", "s2s.decoding", "s2s.training"], "beartype.beartype")


@pytest.fixture(scope="session", autouse=True)
def _temporary_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    import datasets

    cache = tmp_path_factory.mktemp("cache")
    datasets.config.HF_DATASETS_CACHE = cache
    os.environ["HF_DATASETS_CACHE"] = str(cache)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder with Multi30k's files; the test is skipped where it is absent."""
    folder = Path(os.environ.get("S2S_DATA", ROOT.parent / "shared" / "data")) / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"S2S_DATA has no multi30k: {folder}")
    return folder
