"""The loop around ONNX graphs: their tensors go in and out, and our beam search decides.

To the search they are an encoder, a decoder and a projection like any others; so what it writes with them is what it
writes with the model that they were made of.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor, nn

from s2s.data.tokenizers import Tokenizer
from s2s.decoding.translator import LineTranslator, Translator
from s2s.errors import UserError
from s2s.export.exportable import check_installed
from s2s.export.onnx import DESCRIBED
from s2s.json_files import read_json
from s2s.models.contract import Rows
from s2s.run.exported import check_files
from s2s.run.folder import TOKENIZER, Opened
from s2s.run.loaded import load_tokenizers
from s2s.tasks.lines import Seen


def line_translator(run: Opened, nbest: int, checkpoint: None = None) -> tuple[LineTranslator, Seen | None]:
    """What translates lines with an export, and what was seen in training.

    Raises:
        UserError: a file has changed since it was exported, or the engine cannot load it.
    """
    check_files(run.path)
    tokenizers: tuple[Tokenizer, ...] = load_tokenizers(run.path, run.recipe)
    recipe: Any = run.recipe
    model: Any = Graphs(run.path, recipe.device.threads or 0)
    translator = Translator(model, tokenizers[0], tokenizers[-1], recipe.decoding, nbest)
    return translator, Seen.load(run.path / TOKENIZER)


class Graph(BaseModel):
    """What `onnx.json` says of a graph: the names of the tensors that it takes."""

    inputs: list[str]


class Steps(BaseModel):
    """The graphs of a model that writes."""

    start: Graph
    step: Graph


class Described(BaseModel):
    """What `onnx.json` says of a model that writes; see `s2s.export.onnx.save`."""

    graphs: Steps
    context: list[str]
    state: list[str]
    empty: list[list[int]]
    longest: int | None
    longest_source: int | None
    one_to_one: bool


@dataclass(frozen=True)
class Begun(Rows):
    """What `start.onnx` gives: the tensors of the context, and those of the state where it has any yet."""

    context: tuple[Tensor, ...]
    state: tuple[Tensor, ...]


@dataclass(frozen=True)
class Context(Rows):
    """What every step reads."""

    tensors: tuple[Tensor, ...]


@dataclass(frozen=True)
class State(Rows):
    """What each step changes, and what was fed so far."""

    tensors: tuple[Tensor, ...]
    written: Tensor


class Graphs(nn.Module):
    """The graphs of a folder, in the place of a `Seq2Seq`, on the processor, with so many threads, or all when 0.

    Raises:
        UserError: onnxruntime is not installed, or the folder has no graphs of a model that writes.
    """

    def __init__(self, folder: Path, threads: int) -> None:
        super().__init__()
        check_installed("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.described = read_json(folder / DESCRIBED, Described, "export the run again")
        try:
            self.sessions = {
                name: onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), options, ["CPUExecutionProvider"])
                for name in Steps.model_fields
            }
        except Exception as error:
            raise UserError(f"cannot be loaded: {error!s:.200}", str(folder), "export the run again") from None
        # asked for a device
        self.nothing = nn.Parameter(torch.zeros(()), requires_grad=False)
        self.projection = nn.Identity()
        self.encoder = _Start(self)
        self.decoder = _Step(self)

    def run(self, graph: str, given: dict[str, Tensor]) -> list[Tensor]:
        """What a graph makes of tensors; those that it does not take are left out."""
        takes = getattr(self.described.graphs, graph).inputs
        fed = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in given.items() if name in takes}
        return [torch.from_numpy(found) for found in self.sessions[graph].run(None, fed)]


class _Start(nn.Module):
    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.graphs = [graphs]
        self.longest = graphs.described.longest_source

    def forward(self, source: Tensor, valid: Tensor) -> Begun:
        (graphs,) = self.graphs
        found = graphs.run("start", {"source": source, "valid": valid})
        count = len(graphs.described.context)
        return Begun(tuple(found[:count]), tuple(found[count:]))


class _Step(nn.Module):
    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.graphs = [graphs]
        self.longest = graphs.described.longest
        self.one_to_one = graphs.described.one_to_one

    def start(self, memory: Begun, limit: int) -> tuple[Context, State]:
        """What was begun; where the state was empty, tensors with nothing in them."""
        (graphs,) = self.graphs
        rows = len(memory.context[0] if memory.context else memory.state[0])
        empty = [[rows if size < 0 else size for size in shape] for shape in graphs.described.empty]
        state = memory.state or tuple(torch.zeros(shape) for shape in empty)
        return Context(memory.context), State(state, torch.zeros(rows, 0, dtype=torch.long))

    def forward(self, context: Context, state: State, tokens: Tensor) -> tuple[Tensor, State]:
        (graphs,) = self.graphs
        given = dict(zip(graphs.described.context, context.tensors, strict=True))
        given |= dict(zip(graphs.described.state, state.tensors, strict=True))
        scores, *after = graphs.run("step", given | {"newest": tokens, "written": state.written})
        return scores.unsqueeze(1), State(tuple(after), torch.cat((state.written, tokens), dim=1))
