"""Ensembles of runs by command and in Python: `RUN+RUN`."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.errors import UserError
from s2s.run.folder import open_run

LINES = ["The old dog runs.", "", "A man sees the woman."]


@pytest.fixture(scope="module")
def runs(small_world, tmp_path_factory) -> dict[str, str]:
    """Paths of runs of one recipe: `t`, another seed, another kind of model, another vocabulary; and a classifier."""
    folder = tmp_path_factory.mktemp("ensemble")
    changes = {
        "seed": {"seeds.initialization": 2, "seeds.data": 2},
        "gru": {"model.kind": "gru"},
        "words": {"tokenizer.kind": "word"},
    }
    for name, overrides in changes.items():
        for _ in s2s.train(small_world / "t.yaml", {"run.dir": str(folder / name), **overrides}):
            pass
    trained = {name: str(folder / name) for name in changes}
    return {"t": str(small_world / "runs/t"), "c": str(small_world / "runs/c")} | trained


def _command(*words: object) -> str:
    done = CliRunner().invoke(commands, [str(word) for word in words], standalone_mode=False, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_ensemble_of_a_run_with_itself_is_the_run(runs):
    one, twice = s2s.load(runs["t"]), s2s.load(f"{runs['t']}+{runs['t']}")
    assert twice.candidates(LINES, nbest=1, beam=3) == one.candidates(LINES, nbest=1, beam=3)
    assert twice.score(LINES, LINES) == one.score(LINES, LINES)


@pytest.mark.parametrize("mean", ["probabilities", "log"])
def test_ensemble_of_two_kinds_scores_by_the_mean(runs, mean):
    joined = s2s.load(f"{runs['t']}+{runs['gru']}", overrides={"decoding.ensemble": mean})
    text = "abc"
    first, second = (np.array(_token_log_probabilities(runs[name], text)) for name in ("t", "gru"))
    each = np.logaddexp(first, second) - np.log(2) if mean == "probabilities" else (first + second) / 2
    assert joined.score(["A dog."], [text]) == pytest.approx([each.sum()], abs=1e-4)


def _token_log_probabilities(run: str, text: str) -> list[float]:
    """Log probability of each token of a text, from scores of its prefixes: logits of the model itself."""
    import torch

    from s2s.data.batches import collate

    loaded = s2s.load(run).loaded
    batch = collate([loaded.tokenizers[0].encode("A dog.")], [loaded.tokenizers[-1].encode(text)], [0])
    with torch.no_grad():
        logits = loaded.model.logits(batch.source, batch.source_valid, batch.target_in)
    return logits.log_softmax(2).gather(2, batch.target_out.unsqueeze(2)).flatten().tolist()


def test_ensemble_is_translated_and_evaluated_by_command(runs, tmp_path):
    joined = f"{runs['t']}+{runs['seed']}"
    before = {path: path.stat().st_mtime_ns for path in Path(runs["t"]).rglob("*")}
    found = s2s.load(joined)
    assert _command("translate", joined, *[line for line in LINES if line]).splitlines() == found.translate(
        [line for line in LINES if line]
    )
    shown = _command("evaluate", runs["t"], joined, "--json", tmp_path / "scores.json")
    assert f"{joined}, checkpoint" in shown
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["evaluations"]
    assert scores[1]["translations"] == [best[0].text for best in found.candidates(scores[1]["sources"])]
    # the scores of an ensemble are no member's
    after = {
        path: path.stat().st_mtime_ns for path in Path(runs["t"]).rglob("*") if path.name != "evaluation-test.json"
    }
    assert after.items() <= before.items()
    assert json.loads((Path(runs["t"]) / "evaluation-test.json").read_text(encoding="utf-8"))["run"] == runs["t"]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (("t", "words"), "another vocabulary"),
        (("t", "c"), "is a run of task classification"),
        (("c", "c"), "an ensemble needs models with a decoder"),
    ],
)
def test_ensemble_refuses_runs_that_do_not_fit(runs, members, message):
    with pytest.raises(UserError, match=message):
        s2s.load("+".join(runs[name] for name in members))


def test_ensemble_is_refused_where_one_run_is_needed(runs):
    joined = f"{runs['t']}+{runs['seed']}"
    with pytest.raises(UserError, match="is an ensemble"):
        open_run(Path(joined))
    with pytest.raises(UserError, match="no attention of its own"):
        s2s.load(joined).attention("A dog runs.")
