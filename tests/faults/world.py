"""Good recipes, corpora and runs of every task, for tests with bad inputs."""

import contextlib
import gzip
import os
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Content = str | bytes | Callable[[Path], None]


@dataclass(frozen=True)
class Case:
    """A bad input.

    Attributes:
        name: unique.
        command: the words after `s2s`; `{world}` is the folder of good things.
        tells: what the message must name: the key or the file, the value.
        files: what lies in the working directory, by name: text, bytes, or what makes it.
        text: standard input.
        status: exit status; 1 where only some lines of a batch are bad.
    """

    name: str
    command: tuple[str, ...]
    tells: tuple[str, ...]
    files: Mapping[str, Content] = field(default_factory=dict)
    text: bytes = b""
    status: int = 2

    def lay_out(self, folder: Path) -> None:
        """Makes the working directory."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if callable(content):
                content(path)
            else:
                path.write_bytes(content if isinstance(content, bytes) else content.encode())


MODEL = "model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}"
ENCODER = MODEL.replace(", decoder_layers: 1", "")
COURSE = "training: {updates: 1, warmup: 1}\nvalidation: {every: 1}\ndevice: {kind: cpu, precision: fp32, threads: 1}\n"
TRANSLATION = (
    f"name: t\ndata: {{train: 40, validation: 2, test: 2}}\ntokenizer: {{kind: bytes}}\n{MODEL}\n{COURSE}"
    "decoding: {beam: 1, max_ratio: 0.1, max_extra: 1}\n"
)
CLASSIFICATION = (
    "task: classification\nname: c\ndata: {train: c.tsv, validation: 4, test: 4}\n"
    f"tokenizer: {{kind: bytes}}\n{ENCODER}\n{COURSE}"
)
MASKED = CLASSIFICATION.replace("classification", "masked-lm").replace("name: c", "name: m")
LANGUAGE = (
    "task: language-model\nname: l\ndata: {train: c.tsv, validation: 4, test: 4}\ntokenizer: {kind: bytes}\n"
    "batches: {length: 32, tokens: 64}\n" + ENCODER.replace("encoder_layers", "decoder_layers") + f"\n{COURSE}"
)
IMAGES = f"task: images\nname: i\ndata: {{train: i, validation: 2, test: null, size: 8}}\n{ENCODER}\n{COURSE}"
RECIPES = {"t": TRANSLATION, "c": CLASSIFICATION, "m": MASKED, "i": IMAGES, "l": LANGUAGE}


def idx(values: bytes, *sizes: int) -> bytes:
    """An IDX file of bytes."""
    return struct.pack(f">BBBB{len(sizes)}I", 0, 0, 8, len(sizes), *sizes) + values


def make_world(folder: Path, names: str = "".join(RECIPES)) -> Path:
    """Good recipes `t.yaml`, `c.yaml`, `m.yaml`, `i.yaml`, `l.yaml` with corpora, and a run of each in `runs/`."""
    from PIL import Image
    from rich.console import Console

    from s2s.run.tasks import read
    from s2s.run.training import train

    folder.mkdir(parents=True)
    rows = [f"text number {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(40)]
    (folder / "c.tsv").write_text("text\tlabel\n" + "".join(rows))
    for n in range(8):
        path = folder / "i" / ("dark" if n % 2 else "light") / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 20 * n).save(path)
    with (folder / "log.txt").open("w") as log, contextlib.chdir(folder):
        for name in names:
            (folder / f"{name}.yaml").write_text(RECIPES[name])
            train(read(folder / f"{name}.yaml"), Console(file=log, width=200))
    return folder


def fifo(path: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def zero(path: Path) -> None:
    """A link to a device without an end."""
    path.symlink_to("/dev/zero")


def broken(path: Path) -> None:
    """A link that leads nowhere."""
    path.symlink_to("gone")


def directory(path: Path) -> None:
    """A folder where a file should be."""
    path.mkdir()


def written(make: Callable[[], bytes]) -> Callable[[Path], None]:
    """Content that is made when it is written: too large or slow to make whenever the tests are collected."""
    return lambda path: path.write_bytes(make()) and None


def packed(text: str) -> bytes:
    """Text, by gzip."""
    return gzip.compress(text.encode())
