"""Numerical self-tests: compute a quantity in two ways and compare the results.

All self-tests run in fp32 or fp64. The tolerance in fp32 allows for rounding: it grows with the size of the compared
numbers and with the square root of the number of summed terms.
"""

import copy
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from s2s.data.dataset import BaseBatch, Examples
from s2s.errors import UserError
from s2s.nn.precision import PrecisionError
from s2s.run import folder as folders
from s2s.run import manifest
from s2s.run.inference import load_tokenizers
from s2s.run.tasks import task_of
from s2s.run.training import build_trainer
from s2s.tasks.base import AnyRun, AnyTask, PrintFn
from s2s.tasks.protocols import DecodesIncrementally, Diagnosable, HasBeamSearch
from s2s.training.checkpoint import Checkpoints, Progress, read_training
from s2s.training.device import parse_precision
from s2s.training.precision import check_precision
from s2s.training.tensor_files import load_weights
from s2s.training.trainer import Trainer

_ROUNDINGS = 64  # allowed; runs of four kinds of models needed at most three
_EPSILON = 2.0**-23  # relative spacing of fp32
_LARGEST_WEIGHT = 1e4
_EXACT = "tolerance: none, the results must be bit-identical"
# Central differences have an error of O(h²) from the curvature and of O(ε/h) from rounding. The sum is smallest at
# h = ε^(1/3) (Press et al. 2007, section 5.7).
_STEP = torch.finfo(torch.float64).eps ** (1 / 3)
_SLOPE_TOLERANCE = 1e-4
_DIRECTIONS = 4
_GRADIENT_EXAMPLES = 3
_RESUMED_STEPS = 4

Status = Literal["pass", "fail", "not applicable"]


@dataclass(frozen=True)
class SelfTest:
    """Result of a self-test.

    Attributes:
        status: `pass`, `fail` or `not applicable`.
        detail: Compared quantities; the reason if the self-test raised an error or is not applicable.
        value: Largest difference, number of differences, or largest weight; None if there is none or it is not finite.
        tolerance: Largest value that passes.
    """

    name: str
    status: Status
    detail: str
    value: float | None = None
    tolerance: float | None = None
    reason: str = ""

    def __str__(self) -> str:
        if self.tolerance is None:
            return f"  {self.status}: {self.name}: {self.detail}"
        value = math.nan if self.value is None else self.value
        sign = "≤" if self.status == "pass" else ">"
        first = f"  {self.status}: {self.name}: {value:.2g} {sign} {self.tolerance:.2g}"
        return "\n      ".join([first, self.detail, self.reason])


@dataclass(frozen=True)
class ModelUnderTest:
    """A trained model with held-out examples.

    Attributes:
        rows: Row numbers of the examples to use; they form one batch.
        print_fn: Prints a line, for work that takes long.
    """

    task: AnyTask
    run: AnyRun
    examples: Examples[BaseBatch]
    rows: np.ndarray
    print_fn: PrintFn = lambda line: None

    @cached_property
    def batch(self) -> BaseBatch:
        """All examples in one batch."""
        return self.batch_of(self.rows)

    @cached_property
    def log_probabilities(self) -> Tensor:
        """Log-probabilities of the batch, `(items, choices)`, the reference value."""
        return self.log_probabilities_of(self.batch)

    def batch_of(self, rows: np.ndarray) -> BaseBatch:
        """Collate rows into a batch on the model's device."""
        return self.examples.collate(rows, 0).to(self.run.device_context.device)

    @torch.no_grad()
    def log_probabilities_of(self, batch: BaseBatch) -> Tensor:
        """Compute the log-probabilities of a batch, `(items, choices)`."""
        return diagnosable(self.run).log_probs(self.run.model, batch)

    def describe(self) -> str:
        """Describe the compared quantity with its size."""
        return f"{self.log_probabilities.numel():,} log-probabilities"


def diagnosable(run: AnyRun) -> Diagnosable:
    """Return the task of a run, if its models can be diagnosed."""
    task = task_of(run.recipe)
    if not isinstance(task, Diagnosable):
        raise UserError(
            f"there is no diagnosis of task {run.recipe.task}",
            where=str(run.path),
            remedy="give its class the methods of s2s.tasks.protocols.Diagnosable",
        )
    return task


def run_self_tests(model: ModelUnderTest, names: Sequence[str] | None = None) -> list[SelfTest]:
    """Run self-tests.

    Args:
        model: The model under test.
        names: Keys of `SELF_TESTS`; None: all.

    Returns:
        One result per self-test. A self-test that the device cannot run in the model's precision is `not applicable`.
        One that raises an error fails.

    Raises:
        UserError: The run cannot be read.
    """
    return [_run(name, SELF_TESTS[name], model) for name in names or SELF_TESTS]


def _run(name: str, test: Callable[[str, ModelUnderTest], SelfTest], model: ModelUnderTest) -> SelfTest:
    try:
        return test(name, model)
    except PrecisionError as error:
        return _not_applicable(name, f"{error.where}: {error.what}")
    except UserError:
        raise
    except Exception as error:
        # a broken model may raise instead of computing other numbers; the other self-tests still run
        message = (str(error).strip() or "no message").splitlines()[0]
        return SelfTest(name, "fail", f"{type(error).__name__}: {message}")


def _compared(name: str, detail: str, value: float, tolerance: float, reason: str) -> SelfTest:
    # NaN fails; JSON has no NaN
    status = "pass" if value <= tolerance else "fail"
    return SelfTest(name, status, detail, value if math.isfinite(value) else None, tolerance, reason)


def _not_applicable(name: str, reason: str) -> SelfTest:
    return SelfTest(name, "not applicable", reason)


def _difference(one: Tensor, other: Tensor) -> float:
    """Return the largest absolute difference; NaN for NaN or different shapes."""
    if one.shape != other.shape:
        return math.nan
    difference = (one.cpu().double() - other.cpu().double()).abs()
    # -inf equals -inf
    return float(torch.where(one == other, 0.0, difference).max()) if one.numel() else 0.0


def _tolerance(numbers: Tensor, terms: int = 1) -> tuple[float, str]:
    """Return the tolerance for sums of `terms` numbers, and its reason."""
    finite = numbers[numbers.isfinite()]
    size = max(1.0, float(finite.abs().max()) if finite.numel() else 1.0)
    # errors of either sign grow like a random walk
    scale = f" × √{terms} summed terms" if terms > 1 else ""
    reason = f"tolerance: {_ROUNDINGS} roundings of fp32 (2⁻²³) of the largest number, {size:.3g}{scale}"
    return _ROUNDINGS * _EPSILON * size * math.sqrt(terms), reason


@torch.no_grad()
def _incremental(name: str, model: ModelUnderTest) -> SelfTest:
    """Feed one token at a time, with permuted rows of the decoder's state."""
    if not isinstance(model.task, DecodesIncrementally):
        return _not_applicable(name, "the task does not generate text")
    found = model.task.incremental_log_probs(model.run.model, model.batch)
    detail = f"{model.describe()}: token by token with permuted rows, and all tokens at once"
    wanted = model.log_probabilities
    return _compared(name, detail, _difference(found, wanted), *_tolerance(wanted))


@torch.no_grad()
def _beam_search(name: str, model: ModelUnderTest) -> SelfTest:
    if not isinstance(model.task, HasBeamSearch):
        return _not_applicable(name, "the task has no beam search")
    found = model.task.score_tokens(model.run, model.batch)
    detail = f"log-probabilities of {len(found.reported)} hypotheses: of the search, and by teacher forcing"
    difference = _difference(found.reported, found.again)
    return _compared(name, detail, difference, *_tolerance(model.log_probabilities, found.longest))


def _batch(name: str, model: ModelUnderTest) -> SelfTest:
    """Compute the padded batch, and each example alone."""
    each = [model.log_probabilities_of(model.batch_of(model.rows[i : i + 1])) for i in range(len(model.rows))]
    found, wanted = torch.cat(each), model.log_probabilities
    detail = f"{model.describe()} of {len(each)} examples: in one batch, and one by one"
    return _compared(name, detail, _difference(found, wanted), *_tolerance(wanted))


def _gradient(name: str, model: ModelUnderTest) -> SelfTest:
    """Compare the gradient with central differences along random unit directions.

    In fp64, without dropout.
    """
    if model.run.device_context.device.type == "mps":
        return _not_applicable(name, "mps has no fp64")
    # a copy: the run's own weights must not change
    network = copy.deepcopy(model.run.model).cpu().double().eval()
    weights = [p for p in network.parameters() if p.requires_grad]
    rows = model.rows[:_GRADIENT_EXAMPLES]
    batch, loss_of = model.batch_of(rows).to("cpu"), model.task.loss(model.run.recipe)

    def loss() -> Tensor:
        return loss_of(network, batch)[0] / max(1, batch.count)

    found = torch.autograd.grad(loss(), weights, allow_unused=True)
    gradient = [p.new_zeros(p.shape) if g is None else g for p, g in zip(weights, found, strict=True)]
    # expected slope along a random direction
    norm = math.sqrt(sum(float(g.square().sum()) for g in gradient))
    usual = norm / math.sqrt(max(1, sum(p.numel() for p in weights)))
    worst = max(_slope_error(loss, weights, gradient, usual, seed) for seed in range(_DIRECTIONS))
    detail = f"slopes of the loss of {len(rows)} examples along {_DIRECTIONS} random directions, in fp64"
    reason = f"tolerance: {_SLOPE_TOLERANCE:g} of the slope; a step of {_STEP:.1g} can cross the kink of a ReLU"
    return _compared(name, detail, worst, _SLOPE_TOLERANCE, reason)


@torch.no_grad()
def _slope_error(
    loss: Callable[[], Tensor], weights: list[nn.Parameter], gradient: list[Tensor], usual: float, seed: int
) -> float:
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randn(p.shape, generator=generator, dtype=torch.float64).to(p.device) for p in weights]
    length = math.sqrt(sum(float(d.square().sum()) for d in drawn))
    direction = [d / length for d in drawn]
    slope = sum(float((g * d).sum()) for g, d in zip(gradient, direction, strict=True))
    start, around = [p.clone() for p in weights], []
    for step in (_STEP, -_STEP):
        for p, s, d in zip(weights, start, direction, strict=True):
            p.copy_(s + step * d)
        around.append(float(loss()))
    for p, s in zip(weights, start, strict=True):
        p.copy_(s)
    measured = (around[0] - around[1]) / (2 * _STEP)
    scale = max(abs(slope), usual)
    return abs(measured - slope) / scale if scale else abs(measured)


def _finite_weights(name: str, model: ModelUnderTest) -> SelfTest:
    weights = {n: p.detach().cpu().double() for n, p in model.run.model.named_parameters() if p.numel()}
    largest = {n: float(p.abs().max()) for n, p in weights.items()}
    worst = max(largest, key=lambda n: largest[n] if math.isfinite(largest[n]) else math.inf)
    norm = math.sqrt(sum(float(p.square().sum()) for p in weights.values()))
    detail = f"largest of {sum(p.numel() for p in weights.values()):,} weights ({worst}); norm {norm:.4g}"
    reason = f"tolerance: {_LARGEST_WEIGHT:g}; initial weights are below 10, a step moves a weight by about the rate"
    return _compared(name, detail, largest[worst], _LARGEST_WEIGHT, reason)


def _checkpoint(name: str, model: ModelUnderTest) -> SelfTest:
    """Load the checkpoint into a model that was initialized with another seed."""
    run = model.run
    seeds = run.recipe.seeds.model_copy(update={"initialization": run.recipe.seeds.initialization + 1})
    with torch.random.fork_rng(devices=[]):
        other = model.task.build(run.recipe.model_copy(update={"seeds": seeds}), run.tokenizers)
    load_weights(other, run.checkpoint / "model.safetensors")
    again = replace(model, run=replace(run, model=other.to(run.device_context.device).eval())).log_probabilities
    detail = f"{model.describe()}: of the model, and of one with another seed that loads the checkpoint"
    return _compared(name, detail, _difference(model.log_probabilities, again), 0, _EXACT)


def _resume(name: str, model: ModelUnderTest) -> SelfTest:
    """Train some steps from the last checkpoint, and again with a stop half-way.

    Writes only to a temporary folder.
    """
    folder, recipe, task = model.run.path, model.run.recipe, model.task
    last = Checkpoints(folder).last()
    if last is None or not (last / "training.safetensors").exists():
        return _not_applicable(name, "the run has no checkpoint to resume from")
    try:
        tokenizers = load_tokenizers(folder, recipe)
        data = task.prepare(recipe, tokenizers, lambda line: None)
    except (UserError, OSError) as error:
        return _not_applicable(name, f"the training data cannot be read: {str(error).splitlines()[0]}")
    starts = manifest.read(folder / folders.MANIFEST)
    if starts and starts[-1]["hashes"].get("training_data") != data.hashes()["training_data"]:
        return _not_applicable(name, "the training data changed since the run was started")
    recipe = task.finalize_config(recipe, data)
    tensors, progress = read_training(last)
    end, middle = progress.update + _RESUMED_STEPS, progress.update + _RESUMED_STEPS // 2
    # a schedule that ends with the run would have a learning rate of 0
    longer = recipe.training.model_copy(update={"updates": max(end + 1, recipe.training.updates)})
    recipe = recipe.model_copy(update={"training": longer})
    before = parse_precision(manifest.training_device(folder))
    device_context = replace(
        model.run.device_context, precision=before or model.run.device_context.precision, autoselect_precision=False
    )

    def trainer_from(
        tensors: Mapping[str, Tensor], progress: Progress, checkpoint: Path
    ) -> Trainer[nn.Module, BaseBatch]:
        trainer = build_trainer(task, recipe, data, device_context, (None, folder))[0]
        # the trainer may keep the tensors that it loads
        trainer.load_state({key: tensor.clone() for key, tensor in tensors.items()}, progress.place, checkpoint)
        return trainer

    straight = trainer_from(tensors, progress, last)
    check_precision(straight)
    losses = [update.loss for update in straight.updates(end)]
    stopped = trainer_from(tensors, progress, last)
    resumed_losses = [update.loss for update in stopped.updates(middle)]
    with tempfile.TemporaryDirectory() as place:
        saved = _save(stopped, Path(place), last)
        resumed = trainer_from(*read_training(saved), saved)
        resumed_losses += [update.loss for update in resumed.updates(end)]
    one, two = straight.state()[0], resumed.state()[0]
    different = sum(not (key in one and key in two and _has_same_bits(one[key], two[key])) for key in one | two)
    different += sum(a != b for a, b in zip(losses, resumed_losses, strict=True))
    moved = max(_difference(one[key], tensors[key].to(one[key].device)) for key in tensors if key.startswith("model."))
    detail = (
        f"{len(one)} tensors and {len(losses)} losses after step {end}: uninterrupted, and resumed at step {middle}; "
        f"number of differences (weights moved by up to {moved:.1g})"
    )
    return _compared(name, detail, different, 0, _EXACT)


def _has_same_bits(one: Tensor, other: Tensor) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    # as bytes, so that NaN equals NaN
    return torch.equal(*(t.detach().cpu().contiguous().view(-1).view(torch.uint8) for t in (one, other)))


def _save(trainer: Trainer[nn.Module, BaseBatch], folder: Path, like: Path) -> Path:
    shutil.copy(like / folders.RECIPE, folder / folders.RECIPE)
    shutil.copytree(like / folders.TOKENIZER, folder / folders.TOKENIZER)
    tensors, place = trainer.state()
    progress = Progress(place["update"], place["epoch"], place["position"])
    with trainer.optimization.use_ema_weights():
        return Checkpoints(folder).save(trainer.model, tensors, progress, str(trainer.device_context))


RESUME = "resuming = never stopping"
SELF_TESTS: dict[str, Callable[[str, ModelUnderTest], SelfTest]] = {
    "incremental decoding = teacher forcing": _incremental,
    "beam search scores = teacher forcing": _beam_search,
    "a batch = its examples alone": _batch,
    "gradient = finite differences": _gradient,
    "weights are finite": _finite_weights,
    "the checkpoint is the whole model": _checkpoint,
    RESUME: _resume,
}
"""All self-tests by name, in the order of the report."""
