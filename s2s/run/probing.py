"""What a trained masked-language model expects: in a blank, and of the sentences of a pair."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from s2s.evaluation.bias import BiasReport, bias_picture, prefer, read_pairs, report, write_preferences
from s2s.evaluation.filling import Filled, WordChoice, weigh_words
from s2s.evaluation.filling import fill as fill_with
from s2s.files import write_atomically
from s2s.run.masked_lm_loading import load_masked_lm

NAME = "probe-bias"


def fill_blank(path: Path, text: str, pieces: int = 1, best: int = 10, checkpoint: str | None = None) -> Filled:
    """The best fillers of the blank `___` in a text; see `s2s.evaluation.filling.fill`.

    Args:
        path: the run's folder.
        text: with one blank.
        pieces: of a filler.
        best: how many fillers.
        checkpoint: see `s2s.run.loading.find_checkpoint`.

    Raises:
        UserError: it is no run of a masked-language model, or the text cannot be filled.
    """
    run = load_masked_lm(path, checkpoint)
    return fill_with(run.model, run.tokenizer, text, run.recipe.masking.begin, pieces, best)


def weigh(path: Path, text: str, words: Sequence[str], checkpoint: str | None = None) -> WordChoice:
    """The probability of each word in the blank `___` of a text; see `s2s.evaluation.filling.weigh_words`.

    Raises:
        UserError: it is no run of a masked-language model, or the words do not fit the blank.
    """
    run = load_masked_lm(path, checkpoint)
    return weigh_words(run.model, run.tokenizer, text, words, run.recipe.masking.begin)


def probe_pairs(path: Path, pairs: Path, checkpoint: str | None = None) -> BiasReport:
    """Which sentences a run's model prefers; kept in its folder as JSON, CSV and PNG.

    Args:
        path: the run's folder.
        pairs: a table like CrowS-Pairs; see `s2s.evaluation.bias.read_pairs`.
        checkpoint: see `s2s.run.loading.find_checkpoint`.

    Raises:
        UserError: it is no run of a masked-language model, or the table is none.
    """
    table = read_pairs(pairs)
    run = load_masked_lm(path, checkpoint)
    found = report(prefer(run.model, run.tokenizer, table, run.recipe.masking.begin))
    kept = {
        "run": str(path),
        "checkpoint": run.checkpoint.name,
        "pairs": str(pairs),
        "digest": hashlib.sha256(pairs.read_bytes()).hexdigest(),
        "all": asdict(found.all),
        "directions": [asdict(group) for group in found.directions],
        "kinds": [asdict(group) for group in found.kinds],
    }
    write_atomically(path / f"{NAME}.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    write_preferences(found.preferences, path / f"{NAME}.csv")
    bias_picture(found).savefig(path / f"{NAME}.png", dpi=150)
    return found
