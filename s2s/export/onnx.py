"""Export a model to ONNX graphs with torch.onnx, and check them with onnxruntime.

A model that answers at once becomes `model.onnx`. A model that generates becomes `start.onnx`, run once per source,
and `step.onnx`, run once per token: it takes the newest token and the state, and returns scores and the new state.
docs/export.md shows a decoding loop.
"""

import json
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from textwrap import shorten
from traceback import extract_stack
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from s2s.errors import UserError
from s2s.export.exportable import POSITIONS, check_installed
from s2s.export.graphs import Answer, Example, Start, Step, Writer, after, counts, leaves, start
from s2s.export.recurrent import replaced, translations
from s2s.models.base import Classifier, Decoder, Encoder, Seq2Seq
from s2s.models.language_model import CausalDecoder
from s2s.models.masked_lm import MaskedLM
from s2s.models.patches import ImageTable
from s2s.nn.positions import extend_positions

DESCRIBED = "onnx.json"
TOLERANCE = 1e-4
"""Absolute and relative tolerance of the outputs."""
_REMEDY = "export to ctranslate2 or hub, or a model of another kind"
_NO_BRANCHES = f"leave out conditions on sizes, of which a graph keeps one branch, or {_REMEDY}"
# Rows, source tokens and target tokens of the two examples for the export: all sizes differ, and none of the first
# is 1.
_EXAMPLES = ((2, 7, 4), (3, 11, 6))
# Further examples for the check. A long one shows the rounding of sums over a text.
_OTHERS = ((5, 5, 3), (4, 19, 9), (1, 400, 30))


def save(model: nn.Module, sizes: tuple[int, int], folder: Path) -> None:
    """Write the ONNX graphs of a model, and `onnx.json`, which describes them.

    Args:
        model: In fp32, in evaluation mode.
        sizes: Vocabulary sizes of source and target; 0 without a source vocabulary.
        folder: An existing folder.
    """
    check_installed("onnx", "onnxruntime", "onnxscript")
    extend_positions(model, POSITIONS)
    make = _Examples(model, sizes)
    examples = make.all()
    described: dict[str, Any] = {"graphs": {}}
    with torch.no_grad():
        if isinstance(model, Classifier | MaskedLM):
            inputs = [[example.source, example.valid] for example in examples]
            described["graphs"]["model"] = _write(folder / "model.onnx", Answer(model), ["source", "valid"], inputs)
        elif isinstance(model, Writer):
            _save_writer(model, examples, folder, described)
    (folder / DESCRIBED).write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _save_writer(model: Writer, examples: list[Example], folder: Path, described: dict[str, Any]) -> None:
    bundles = [after(model, example) for example in examples]
    context, state = bundles[0]
    context_names = [f"context_{i}" for i in range(len(leaves(context)))]
    state_names = [f"state_{i}" for i in range(len(leaves(state)))]
    first = leaves(start(model, examples[0])[1])
    if isinstance(model, Seq2Seq):
        inputs = [[example.source, example.valid] for example in examples]
        given = [*context_names, *state_names[: len(first)]]
        described["graphs"]["start"] = _write(folder / "start.onnx", Start(model), ["source", "valid"], inputs, given)
    steps = [
        [example.written[:, -1:], example.written[:, :-1], [*leaves(context), *leaves(state)]]
        for example, (context, state) in zip(examples, bundles, strict=True)
    ]
    step = Step(model, context, state)
    names = ["newest", "written", *context_names, *state_names]
    after_names = [f"new_{name}" for name in state_names]
    described["graphs"]["step"] = _write(folder / "step.onnx", step, names, steps, ["scores", *after_names])
    # The state before the first step, if the start graph returns none: zeros, with length 0 along the axis of fed
    # tokens.
    fed = [shape for shape in zip(*([t.shape for t in leaves(state)] for _, state in bundles), strict=True)]
    described |= {
        "context": context_names,
        "state": state_names,
        "begun": len(first) if isinstance(model, Seq2Seq) else 0,
        "empty": [_empty(shapes, [len(e.written) for e in examples]) for shapes in fed],
        "counts": counts(state),
        "longest": _longest(model.decoder),
        "one_to_one": getattr(model.decoder, "is_one_to_one", False),
        "longest_source": _longest(model.encoder) if isinstance(model, Seq2Seq) else None,
    }


def _longest(side: Encoder | Decoder[Any, Any] | CausalDecoder[Any]) -> int | None:
    """Return the maximum length of a side: learned positions, or the sinusoid table."""
    return side.max_positions or (POSITIONS if extend_positions(side, POSITIONS) else None)


def _empty(shapes: Sequence[torch.Size], rows: list[int]) -> list[int]:
    """Return the shape before the first step: -1 for rows, 0 for the axis of tokens."""
    sizes = list(zip(*shapes, strict=True))
    return [-1 if list(each) == rows else 0 if len(set(each)) > 1 else each[0] for each in sizes]


def _within(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Return the sizes, at most `limit`.

    The first two still differ: an axis of equal size in both examples would become a constant of the graph.
    """
    first, second, *others = (min(size, limit or size) for size in sizes)
    return [first, second if second != first else max(1, first - 1), *others]


class _Examples:
    """Creates the example inputs of a model; later rows are shorter."""

    def __init__(self, model: nn.Module, sizes: tuple[int, int]) -> None:
        self.sizes = sizes
        encoder = getattr(model, "encoder", None)
        table = getattr(getattr(encoder, "embedding", None), "tokens", getattr(encoder, "embedding", None))
        self.images = table if isinstance(table, ImageTable) else None
        self.one_to_one = isinstance(model, Seq2Seq) and model.decoder.is_one_to_one
        self.reads = encoder is not None
        self.most_read = getattr(encoder, "max_positions", None)
        self.most_written = getattr(getattr(model, "decoder", None), "max_positions", None)

    def all(self) -> list[Example]:
        """Create the two examples for the export, and those for the check."""
        rows, read, written = zip(*_EXAMPLES, *_OTHERS, strict=True)
        shapes = zip(rows, _within(read, self.most_read), _within(written, self.most_written), strict=True)
        return [self._example(*shape) for shape in shapes]

    def _example(self, rows: int, read: int, written: int) -> Example:
        generator = torch.Generator().manual_seed(rows)
        target = torch.randint(4, self.sizes[1] or 5, (rows, written), generator=generator)
        if not self.reads:
            return Example(None, None, target)
        if self.images is not None:
            shape = (rows, len(self.images.mean), *self.images.pixels)
            images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
            return Example(images, torch.ones(rows, self.images.length, dtype=torch.bool), target)
        source = torch.randint(4, self.sizes[0], (rows, read), generator=generator)
        lengths = read - torch.arange(rows)
        valid = torch.arange(read) < lengths[:, None].clamp(min=2)
        # A one-to-one decoder cannot write more tokens than it reads.
        return Example(source * valid, valid, target[:, : read - 1] if self.one_to_one else target)


def _write(
    path: Path, module: nn.Module, names: list[str], inputs: list[list[Any]], given: Sequence[str] = ("scores",)
) -> dict[str, Any]:
    """Export a graph from the first input, and check it with all inputs.

    Axes that differ between the first two inputs become dynamic.
    """
    kind = type(getattr(module, "model", module)).__name__
    axes = _moving(inputs[0], inputs[1])
    with _quietly(), _constants() as lines:
        try:
            program: Any = torch.onnx.export(
                replaced(module.eval()),
                tuple(inputs[0]),
                dynamo=True,
                dynamic_shapes=tuple(axes),
                input_names=names,
                output_names=list(given),
                custom_translation_table=translations(),
                verbose=False,
            )
        except Exception as error:
            # Any exception of the exporter is caused by the model.
            raise _export_error(f"{kind}: {path.stem}", str(error.__cause__ or error), lines) from error
        program.save(str(path))
        found = _check(path, module, names, inputs)
    return {"inputs": found, "outputs": list(given)}


def _export_error(part: str, reason: str, constants: list[str]) -> UserError:
    """Return the error for a model that torch cannot export, with the line of the model that is the likely cause."""
    what, remedy = f"{part} cannot be made into a graph", _REMEDY
    if called := re.findall(r'File "(.+)", line (\d+), in .*\n +(.+)', reason):
        path, line, code = called[-1]
        what += f"; {Path(path).name}:{line} reads the value of a tensor: {code}"
        remedy = f"compute with tensors there, without if, int() or .item(), or {_REMEDY}"
    elif constants or "static" in reason:
        what += f"; a size becomes a constant in {' and in '.join(constants[:3])}" if constants else ""
        remedy = f"write x.shape[0] instead of len(x), and no loop over positions or rows, or {_REMEDY}"
    return UserError(f"{what}; torch says: {shorten(reason, 300, placeholder=' …')}", "--to onnx", remedy)


@contextmanager
def _constants() -> Iterator[list[str]]:
    """Note the lines of the model that make a constant of a dynamic size, as `len(x)` and `range(n)` do."""
    lines: list[str] = []
    conversions = {name: getattr(torch.SymInt, name) for name in ("__index__", "__int__")}
    apart = (str(Path(torch.__file__).parent), str(Path(__file__).parent))

    def noting(convert: Callable[[torch.SymInt], int]) -> Callable[[torch.SymInt], int]:
        def noted(size: torch.SymInt) -> int:
            if size.node.maybe_as_int() is None:
                called = extract_stack()[:-1]
                export = max(i for i, frame in enumerate(called) if frame.filename == __file__)
                for frame in [each for each in called[export:] if not each.filename.startswith(apart)][-1:]:
                    line = f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
                    lines.extend([line] if line not in lines else [])
            return convert(size)

        return noted

    for name, convert in conversions.items():
        setattr(torch.SymInt, name, noting(convert))
    try:
        yield lines
    finally:
        for name, convert in conversions.items():
            setattr(torch.SymInt, name, convert)


def _moving(one: Any, other: Any) -> Any:
    """Return the dynamic axes of each tensor."""
    if isinstance(one, list):
        return [_moving(*both) for both in zip(one, other, strict=True)]
    moving = [i for i, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)) if a != b]
    return {i: torch.export.Dim.DYNAMIC for i in moving}


def _flat(inputs: list[Any]) -> list[Tensor]:
    return [t for each in inputs for t in (each if isinstance(each, list) else [each])]


def _check(path: Path, module: nn.Module, names: list[str], inputs: list[list[Any]]) -> list[str]:
    """Compare a graph with the module on all inputs, and return its input names."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    takes = [each.name for each in session.get_inputs()]
    for each in inputs:
        fed = {name: t.numpy() for name, t in zip(names, _flat(each), strict=True) if name in takes}
        ours = module(*each)
        ours = ours if isinstance(ours, tuple) else (ours,)
        try:
            theirs: list[Any] = list(session.run(None, fed))
        except Exception as error:
            what = f"{path.stem} fails at other sizes: {shorten(str(error), 300, placeholder=' …')}"
            raise UserError(what, "--to onnx", _NO_BRANCHES) from error
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if a.shape != b.shape or not np.allclose(a.numpy(), b, rtol=TOLERANCE, atol=TOLERANCE):
                off = float(np.abs(a.numpy() - b).max()) if a.shape == b.shape else b.shape
                what = f"{path.stem} gives other numbers than the model: output {number}, {off}"
                raise UserError(what, "--to onnx", _NO_BRANCHES)
    return takes


@contextmanager
def _quietly() -> Iterator[None]:
    """Silence torch's internal messages during an export; they are for its developers."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        # torch prints unfinished graphs.
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
