"""What language models are held against: compressors and an n-gram model, on the same texts; and the table of all.

python -m benchmarks.language_models --keep runs/lm_text runs/lm_text_lstm runs/lm_text_mingru

The runs must have the same test texts and the same training texts. Of each run, its scores on the test set, what it
cost and what it ran on go to `docs/results/language_models/<run>.json`, the yardsticks to `yardsticks.json` beside
them; the table in docs/language-models.md is written anew from these files.

- gzip, bz2 and xz, each at its best level, compress the test texts alone, a document a line. They are also given the
  training texts, in front of the test texts: what the whole takes more than the training texts alone. How far back they
  look is in their nature: gzip 32 KiB, bz2 900 kB, xz 64 MiB; only xz can make use of a corpus.
- A 5-gram model of the first run's own pieces, with interpolated, modified Kneser-Ney smoothing.

All are told in bits for each byte of the test texts, a document's end counted as a byte.
"""

import bz2
import gzip
import json
import lzma
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import keeping
from benchmarks.kneser_ney import KneserNey
from s2s.data.tokenized import encode_texts
from s2s.data.tokenizers import BOS, EOS, Tokenizer
from s2s.run.folder import open_run
from s2s.run.inference import evaluation_split, load_tokenizers
from s2s.run.tasks import task_of
from s2s.tasks.language_model.scoring import size_of

RESULTS = keeping.RESULTS / "language_models"
YARDSTICKS = "yardsticks.json"
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gzip -9": lambda data: gzip.compress(data, 9, mtime=0),
    "bz2 -9": lambda data: bz2.compress(data, 9),
    "xz -9e": lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME),
}


def joined(texts: Sequence[str]) -> bytes:
    """A file of the texts, each followed by a byte."""
    return b"".join(text.encode() + b"\n" for text in texts)


def compressed(learned: Sequence[str], tested: Sequence[str]) -> dict[str, dict[str, float]]:
    """Bits per byte of the tested texts: alone, and behind the texts that were learned from."""
    before, data = joined(learned), joined(tested)
    found = {}
    for name, pack in COMPRESSORS.items():
        alone, more = len(pack(data)), len(pack(before + data)) - len(pack(before))
        found[name] = {"alone": 8 * alone / len(data), "after_training_texts": 8 * more / len(data)}
    return found


def n_gram(learned: Any, tested: Any, tokenizer: Tokenizer, order: int = 5) -> float:
    """Bits per byte of the tested texts under an n-gram model of the pieces of those learned from.

    Args:
        learned: a data set with the column `text`.
        tested: another one.
        tokenizer: what cuts both.
        order: the longest n-grams.
    """
    rows = [documents(part, tokenizer) for part in (learned, tested)]
    # neither padding nor the beginning is ever said
    model = KneserNey(rows[0], tokenizer.size, tokenizer.size - 2, order)
    nats = -model.log_probabilities(rows[1]).sum()
    return float(nats / math.log(2) / size_of(tested["text"], [row[1:-1] for row in rows[1]], tokenizer).bytes)


def documents(part: Any, tokenizer: Tokenizer) -> list[np.ndarray]:
    """The pieces of a part's texts, with beginning and end."""
    pieces = encode_texts(part, tokenizer)
    return [np.array([BOS, *text.tolist(), EOS]) for text in pieces.rows(np.arange(len(part)))]


def yardsticks(run: Path) -> dict[str, Any]:
    """What a run's texts take without a network."""
    found = open_run(run)
    tokenizer = load_tokenizers(run, found.recipe)[0]
    corpus = task_of(found.recipe).source(found.recipe).load()
    tested: Any = evaluation_split(found, found.recipe, "test")
    return {
        "run": run.resolve().name,
        "train_bytes": len(joined(corpus.train["text"])),
        "test_bytes": len(joined(tested["text"])),
        "test_documents": len(tested),
        "pieces": tokenizer.size,
        "compressors": compressed(corpus.train["text"], tested["text"]),
        "n_gram": n_gram(corpus.train, tested, tokenizer),
    }


def summary(run: Path) -> dict[str, Any]:
    """What is worth keeping of a run."""
    test = keeping.read(run / "evaluation-test.json")
    nats = math.fsum(test["nats"])
    return keeping.described(run) | {
        "learning_rate": open_run(run).recipe.training.learning_rate,
        "seen": keeping.learned_from(run, "count"),
        "documents": test["documents"],
        "bytes": test["bytes"],
        "bits_per_byte": nats / math.log(2) / test["bytes"],
        "loss": nats / test["pieces"],
        "context": test["context"],
        "stride": test["stride"],
    }


def table() -> str:
    """The table, from the kept files."""
    kept = {path.name: keeping.read(path) for path in sorted(RESULTS.glob("*.json"))}
    rows = ["| model | parameters | training | bits per byte of the test texts |", "|---|---|---|---|"]
    rulers = kept.pop(YARDSTICKS, None)
    if rulers is not None:
        for name, bits in rulers["compressors"].items():
            rows.append(f"| {name} | – | the test texts alone | {bits['alone']:.3f} |")
            rows.append(f"| {name} | – | behind the training texts | {bits['after_training_texts']:.3f} |")
        rows.append(f"| 5-gram, Kneser-Ney | – | {rulers['train_bytes'] / 1e6:.1f} MB, once | {rulers['n_gram']:.3f} |")
    for run in sorted(kept.values(), key=lambda run: -run["bits_per_byte"]):
        training = f"{run['updates']:,} updates, {run['seen'] / 1e6:.1f} M pieces, {run['minutes']} min"
        training += f", rate {run['learning_rate']}"
        rows.append(f"| `{run['kind']}` | {run['parameters'] / 1e6:.2f} M | {training} | {run['bits_per_byte']:.3f} |")
    return "\n".join([*rows, "", *([keeping.machines(kept.values())] if kept else []), ""])


def main() -> None:
    """Keeps the runs given and their yardsticks, and writes the table."""
    parser = keeping.asked(__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--keep", action="store_true", help="write into docs/, not only to the terminal")
    given = parser.parse_args()
    found = {run: summary(run) for run in given.runs}
    if len({(each["documents"], each["bytes"]) for each in found.values()}) > 1:
        parser.error("the runs have different test texts")
    rulers = yardsticks(given.runs[0]) if given.runs else None
    print(json.dumps({"yardsticks": rulers, "runs": {str(run): each for run, each in found.items()}}, indent=1))
    if not given.keep:
        return
    RESULTS.mkdir(exist_ok=True)
    for run, each in found.items():
        keeping.write(RESULTS / f"{run.resolve().name}.json", each)
    if rulers:
        keeping.write(RESULTS / YARDSTICKS, rulers)
    keeping.write_tables({"docs/language-models.md": table()}, "language_models")


if __name__ == "__main__":
    main()
