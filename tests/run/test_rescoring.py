"""Scores of given translations, compared with those of the beam search."""

import json

import pytest
from click.testing import CliRunner

import s2s
from s2s.cli.main import commands
from s2s.errors import UserError

LINES = ["A dog runs.", "The old man sleeps.", "a b c"]


@pytest.fixture
def world(small_world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return small_world


def _evaluate(*words: str):
    done = CliRunner().invoke(commands, ["evaluate", *words], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output.splitlines()


@pytest.mark.parametrize("members", [1, 2])
def test_scores_of_given_translations_are_those_of_the_search(world, tmp_path, members):
    path = "+".join([str(world / "runs/t")] * members)
    run = s2s.load(path)
    found = run.candidates(LINES, nbest=20, beam=20)
    # A search may write a text with other tokens than the tokenizer does.
    encode = run.loaded.tokenizers[-1].encode
    kept = [(i, c) for i, best in enumerate(found) for c in best if list(c.hypothesis.tokens) == encode(c.text)]
    assert len(kept) > 3
    (tmp_path / "source.txt").write_text("".join(f"{LINES[i]}\n" for i, _ in kept), encoding="utf-8")
    (tmp_path / "given.txt").write_text("".join(f"{c.text}\n" for _, c in kept), encoding="utf-8")
    head, *rows = _evaluate(
        path, "--source", "source.txt", "--hypotheses", "given.txt", "--log-probs", "--json", "scores.json"
    )
    assert head.split("\t") == ["line", "log probability", "tokens", "perplexity", "text"]
    saved = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))["hypotheses"]
    for (_, candidate), row, each in zip(kept, rows, saved, strict=True):
        assert float(row.split("\t")[1]) == pytest.approx(candidate.hypothesis.log_probability, abs=1e-3)
        assert sum(each["token_log_probabilities"]) == pytest.approx(candidate.hypothesis.log_probability, abs=1e-4)
        assert each["score"] == pytest.approx(candidate.score, abs=1e-4)
        assert len(each["tokens"]) == len(each["token_log_probabilities"]) == len(candidate.hypothesis.tokens) + 1
    # Shuffled, the n-best list is sorted again.
    listed = [f"{i + 1}\t0\t{c.text}" for i, c in kept]
    (tmp_path / "nbest.txt").write_text("\n".join(listed[::-1]) + "\n", encoding="utf-8")
    ranked = _evaluate(path, "--source", "lines.txt", "--hypotheses", "nbest.txt", "--rerank")
    expected = sorted(kept, key=lambda item: (item[0], -item[1].score))
    assert [row.split("\t")[::2] for row in ranked] == [[str(i + 1), c.text] for i, c in expected]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "lines.txt", "--log-probs"], "takes one RUN, its sources and their translations"),
        (["--hypotheses", "lines.txt", "--log-probs"], "takes one RUN, its sources and their translations"),
        (["--source", "lines.txt", "--hypotheses", "lines.txt", "--rerank"], r"lines.txt:1: is not a line number"),
        (["--source", "lines.txt", "--hypotheses", "lines.txt", "--rerank", "--log-probs"], "cannot be combined"),
        (["--source", "lines.txt", "--hypotheses", "lines.txt", "--log-probs", "--beam", "3"], "--beam cannot be"),
    ],
)
def test_rescoring_that_cannot_be_is_refused(world, words, message):
    with pytest.raises(UserError, match=message):
        _evaluate(str(world / "runs/t"), *words)
