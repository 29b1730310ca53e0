"""Tests for authors of model plug-ins: call `check_model` in your package's tests."""

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from s2s.data.batches import ParallelDataset
from s2s.data.tokenized import RaggedArray, TokenizedDataset
from s2s.data.tokenizers import SPECIAL_TOKENS, Tokenizer
from s2s.diagnosis.report import SelfTestReport
from s2s.diagnosis.self_tests import RESUME, SELF_TESTS, ModelUnderTest, run_self_tests
from s2s.models.base import Seq2Seq
from s2s.models.language_model import LanguageModel
from s2s.recipe.installed import language_settings, module_of
from s2s.run.tasks import schemas, task_of
from s2s.tasks.base import LoadedModel
from s2s.tasks.language_model.data import windows_of
from s2s.tasks.language_model.recipe import LanguageRecipe
from s2s.tasks.translation.recipe import Recipe
from s2s.training.device import select_device
from s2s.training.tensor_files import save_weights

__all__ = ["check_model"]

_LENGTHS = (7, 4, 1, 6, 7, 3)


def check_model(kind: str, settings: Mapping[str, object] | None = None) -> Sequence[SelfTestReport]:
    """Run the numerical self-tests of `s2s diagnose` on an installed model.

    The model has random weights and runs on the CPU. It is tested as a translation model and, if it has
    `build_language_model`, as a language model.

    Args:
        kind: Name of the model, as in `model.kind`.
        settings: Settings of its recipe section, such as `{"width": 16}`; defaults otherwise. Settings that the
            section of the language model does not have are dropped there.

    Returns:
        One report per task. Print it to see the differences and tolerances.

    Raises:
        AssertionError: A self-test failed; the message is the report.
        UserError: The model is not installed, or lacks a part.

    Example:
        >>> reports = check_model("transformer", {"width": 16, "heads": 2, "feedforward": 32})  # doctest: +SKIP
        >>> print(reports[0])  # doctest: +SKIP
    """
    settings = dict(settings or {})
    tasks = {"translation": settings}
    if callable(getattr(module_of(kind), "build_language_model", None)):
        known = language_settings(kind).model_fields
        tasks["language-model"] = {key: value for key, value in settings.items() if key in known}
    reports = [_check(task, kind, own) for task, own in tasks.items()]
    failed = "\n\n".join(str(report) for report in reports if not report.passed)
    if failed:
        raise AssertionError(failed)
    return reports


def _check(name: str, kind: str, settings: Mapping[str, object]) -> SelfTestReport:
    schema = schemas()[name]
    section = {"kind": kind, **settings}
    recipe = schema.recipe_class(schema.settings(kind)).model_validate(
        {"task": name, "name": "check", "model": section, "device": {"kind": "cpu"}}
    )
    task, tokenizer = task_of(recipe), Tokenizer(b"", "bytes", "identity", lowercase=False)
    with torch.random.fork_rng(devices=[]), tempfile.TemporaryDirectory() as folder:
        model = task.build(recipe, (tokenizer, tokenizer)).eval()
        save_weights(model, Path(folder) / "model.safetensors")
        run = LoadedModel(
            Path(folder), Path(folder), recipe, model, (tokenizer, tokenizer), select_device(recipe.device)
        )
        draw = np.random.default_rng(1)
        texts = [draw.integers(len(SPECIAL_TOKENS), tokenizer.size, length) for length in _LENGTHS]
        if isinstance(model, LanguageModel):
            examples = windows_of(run.narrow(LanguageRecipe, LanguageModel).recipe, RaggedArray.from_rows(texts))
        else:
            # A model that labels each token needs targets with the length of their sources.
            translator = run.narrow(Recipe, Seq2Seq)
            targets = texts[:: 1 if translator.model.decoder.is_one_to_one else -1]
            examples = ParallelDataset(TokenizedDataset.from_rows(texts, targets), translator.recipe.batches)
        tests = [test for test in SELF_TESTS if test != RESUME]
        results = run_self_tests(ModelUnderTest(task, run, examples, np.arange(len(texts))), tests)
    return SelfTestReport(f"model {kind}, task {name}, {len(texts)} random examples", results)
