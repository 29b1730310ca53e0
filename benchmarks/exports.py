"""An export to CTranslate2 beside the run that it was made from, in turns.

    python -m benchmarks.exports runs/multi30k                        # its own test set
    python -m benchmarks.exports runs/multi30k data.root=DIR --rounds 7

Each round everybody translates the whole test set, with the recipe's beam and batches of 64: torch in fp32 and in bf16,
the export in fp32 and in int8. It is said how fast each is, how many translations are not those of torch in fp32, and
how good they are. It writes docs/results/export.json and the table of docs/export.md; with --out FILE, that file alone.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from benchmarks.keeping import ROOT, asked, written
from s2s.data.pairs import load_split
from s2s.experiments.rounds import over_rounds
from s2s.export.engine import line_translator
from s2s.export.folder import export
from s2s.files import write_atomically
from s2s.run.folder import opened
from s2s.run.loaded import load
from s2s.run.manifest import git_commit, processor
from s2s.tasks.seq2seq import translator_of
from s2s.training.devices import prepare_process

RESULT, PAGE, WRITER = ROOT / "docs" / "results" / "export.json", ROOT / "docs" / "export.md", "exports"
TORCH, ENGINES = ("torch, fp32", "torch, bf16"), {"fp32": "float32", "int8": "int8"}
Told = dict[str, Any]


def contestants(run: Path, overrides: Sequence[str], folder: Path) -> dict[str, Callable[[list[str]], list[str]]]:
    """What makes translations of lines, by name."""
    found = {}
    overrides = [*overrides, "decoding.batch=64"]
    for name in TORCH:
        found[name] = translator_of(load(run, None, [*overrides, f"decoding.precision={name[-4:]}"]))
    for name, quantization in ENGINES.items():
        export(opened(run), "ctranslate2", folder / name, quantization, None)
        found[name], _ = line_translator(opened(folder / name, overrides), 1)
    return {
        name: lambda lines, one=one: [each.text for each in one.translate_chunk(lines)] for name, one in found.items()
    }


def measure(run: Path, overrides: Sequence[str], rounds: int) -> Told:
    """All that is told of a run and its exports."""
    loaded = load(run, None, overrides)
    prepare_process(loaded.recipe.device)
    pairs: Any = load_split(loaded.recipe.data, "test")
    if pairs is None:
        raise SystemExit("the run's recipe has no test set")
    lines, references = list(pairs["source"]), list(pairs["target"])
    seconds: list[dict[str, float]] = []
    texts: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        everybody = contestants(run, overrides, Path(folder))
        for translate in everybody.values():
            translate(lines[:64])
        for _ in range(rounds):
            seconds.append({})
            for name, translate in everybody.items():
                began = time.perf_counter()
                texts[name] = translate(lines)
                seconds[-1][name] = time.perf_counter() - began
    commit = git_commit()
    return {
        "command": f"python -m benchmarks.exports {run.name} --rounds {rounds}",
        "width": loaded.recipe.model.width,
        "beam": loaded.recipe.decoding.beam,
        "sentences": len(lines),
        "seconds": seconds,
        "other": {
            name: sum(a != b for a, b in zip(found, texts[TORCH[0]], strict=True)) for name, found in texts.items()
        },
        "bleu": {name: sacrebleu.corpus_bleu(found, [references]).score for name, found in texts.items()},
        "machine": processor(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit["commit"] if commit else "",
    }


def table(found: Told) -> str:
    """What is told, for the page."""
    rows = [
        "| | sentences/s | against torch, fp32 | against torch, bf16 | other translations | BLEU |",
        "|---|---|---|---|---|---|",
    ]
    for name in (*TORCH, *ENGINES):
        pace = over_rounds([found["sentences"] / each[name] for each in found["seconds"]]).value
        ratios = [
            ""
            if name in TORCH
            else f"{over_rounds([each[other] / each[name] for each in found['seconds']]).value:.2f}×"
            for other in TORCH
        ]
        rows.append(
            f"| {name} | {pace:,.0f} | {ratios[0]} | {ratios[1]} | {found['other'][name]} | {found['bleu'][name]:.2f} |"
        )
    about = (
        f"Width {found['width']}, {found['sentences']:,} sentences, beam {found['beam']}, batches of 64, "
        f"{len(found['seconds'])} rounds in turns; geometric means. Machine: {found['machine']}, "
        f"{found['threads']} threads, torch {found['torch']}, {found['date']}, commit {found['commit'][:7]}."
    )
    return "\n".join([*rows, "", about, ""])


def main() -> None:
    parser = asked(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = measure(given.run, given.overrides, given.rounds)
    write_atomically(given.out or RESULT, json.dumps(found, indent=1) + "\n")
    print(table(found))
    if given.out is None:
        write_atomically(PAGE, written(PAGE.read_text(encoding="utf-8"), table(found), WRITER))


if __name__ == "__main__":
    main()
