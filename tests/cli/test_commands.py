"""The commands as run from a shell."""

import codecs
import contextlib
import gzip
import json
import lzma
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from click.testing import CliRunner

from s2s.cli.main import main

RECIPE = """
name: tiny
data: {train: 300, validation: 10, test: 12}
tokenizer: {size: 450}
batches: {tokens: 600}
model: {kind: transformer, width: 16, heads: 2, feedforward: 32, encoder_layers: 1, decoder_layers: 1}
training: {updates: 12, warmup: 2, average_last: 2}
validation: {every: 6}
decoding: {beam: 2, max_ratio: 0.5, max_extra: 1}
"""
SENTENCES = "The dog sleeps.\n\nThree old women read a book.\nA cat.\n"


def _s2s(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "s2s.cli.main", *words],
        cwd=folder,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=False,
    )


def _here(folder: Path, *words: str) -> subprocess.CompletedProcess:
    """The same without a process of its own, which would load torch again."""
    status = 0
    with contextlib.chdir(folder), mock.patch.object(sys, "argv", ["s2s", *words]):
        with CliRunner().isolation() as (out, err, _):
            try:
                main()
            except SystemExit as end:
                status = end.code
        return subprocess.CompletedProcess(words, status, out.getvalue().decode(), err.getvalue().decode())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "tiny.yaml").write_text(RECIPE)
    done = _here(folder, "train", "tiny.yaml")
    assert done.returncode == 0, done.stderr
    return folder


def test_cli_run_holds_what_the_documentation_lists(folder):
    run = folder / "runs" / "tiny"
    names = {p.name for p in run.iterdir()}
    assert {
        "recipe.yaml",
        "manifest.json",
        "tokenizer",
        "checkpoints",
        "metrics.jsonl",
        "evaluation-test.json",
    } <= names
    assert any(name.startswith("events.out.tfevents") for name in names)
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"0000006", "0000012", "average"}
    entries = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [e for e in entries if "loss" in e]
    assert [e["update"] for e in updates] == list(range(1, 13))
    assert all({"update", "loss", "tokens", "seconds"} <= e.keys() for e in updates)
    assert [e["update"] for e in entries if "validation" in e] == [6, 12]
    start = json.loads((run / "manifest.json").read_text())[0]
    assert {"packages", "git", "device", "threads", "seeds", "hashes", "counts"} <= start.keys()
    scores = json.loads((run / "evaluation-test.json").read_text())
    assert scores["checkpoint"] == "average"
    assert len(scores["translations"]) == 12
    assert "tok:13a" in scores["scores"]["bleu"]["signature"]


def test_cli_tensorboard_has_the_curves_pictures_and_texts(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.hparams import plugin_data_pb2

    board = EventAccumulator(str(folder / "runs" / "tiny"))
    board.Reload()
    scalars, tags = set(board.Tags()["scalars"]), board.Tags()
    wanted = {"loss", "perplexity", "learning_rate", "clip_rate", "tokens_per_second", "real_tokens"}
    assert {f"training/{name}" for name in wanted} <= scalars
    assert {"gradient_norm/all", "gradient_norm/encoder.layers.0", "validation/bleu", "validation/chrf"} <= scalars
    assert "attention/last_layer" in tags["images"]
    assert any("translations" in name for name in tags["tensors"])
    entries = map(json.loads, (folder / "runs/tiny/metrics.jsonl").read_text().splitlines())
    steps = {entry["update"]: entry for entry in entries if "loss" in entry}
    for name, values in (
        ("loss", {update: entry["loss"] for update, entry in steps.items()}),
        ("tokens_per_second", {update: entry["tokens"] / entry["seconds"] for update, entry in steps.items()}),
    ):
        assert {each.step: each.value for each in board.Scalars(f"training/{name}")} == pytest.approx(values, rel=1e-3)
    assert len(steps) == 12
    # training and validation on one chart, and no chart of the final scores, which are in the table of runs
    layout = layout_pb2.Layout.FromString(board.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0])
    assert list(layout.category[0].chart[0].multiline.tag) == ["training/loss", "validation/loss"]
    assert {name.partition("/")[0] for name in scalars} == {"training", "validation", "gradient_norm"}
    assert all(board.SummaryMetadata(name).summary_description for name in scalars)
    session = board.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    start = plugin_data_pb2.HParamsPluginData.FromString(session).session_start_info
    scores = json.loads((folder / "runs/tiny/evaluation-test.json").read_text())["summary"]["scores"]
    assert {name: start.hparams[f"test/{name}"].number_value for name in scores} == pytest.approx(scores)


def test_cli_split_sentences_are_translated_like_lines_and_joined(folder):
    sentences = ["The dog sleeps.", "Three old women read a book.", "A cat."]
    (folder / "alone.txt").write_text("\n".join(sentences) + "\n")
    (folder / "joined.txt").write_text(f"{sentences[0]}\n\n {sentences[1]}   {sentences[2]}\n")
    alone = _here(folder, "translate", "runs/tiny", "--input", "alone.txt").stdout.splitlines()
    split = _here(folder, "translate", "runs/tiny", "--input", "joined.txt", "--split-sentences")
    assert split.stdout.split("\n") == [alone[0], "", f" {alone[1]}   {alone[2]}", ""]
    assert _here(folder, "translate", "runs/tiny", "A cat. A dog.", "--split-sentences", "--nbest", "2").returncode == 2


def test_cli_file_and_single_lines_give_the_same_translations(folder):
    (folder / "lines.txt").write_text(SENTENCES)
    filed = _here(folder, "translate", "runs/tiny", "--input", "lines.txt", "--output", "out.txt")
    assert filed.returncode == 0, filed.stderr
    written = (folder / "out.txt").read_text()
    told = _here(folder, "translate", "runs/tiny", "--input", "lines.txt")
    assert told.stdout == written
    # into itself: what is read is whole before what is written takes its name
    again = _here(folder, "translate", "runs/tiny", "--input", "lines.txt", "--output", "lines.txt")
    assert again.returncode == 0, again.stderr
    assert (folder / "lines.txt").read_text() == written
    lines = written.split("\n")
    assert len(lines) == 5
    assert lines[1] == lines[4] == ""
    (folder / "single.txt").write_text(SENTENCES.split("\n")[2])
    single = _here(folder, "translate", "runs/tiny", "--input", "single.txt")
    assert single.stdout == lines[2] + "\n"
    argument = _here(folder, "translate", "runs/tiny", SENTENCES.split("\n")[2], "--quiet")
    assert (argument.stdout, argument.stderr) == (lines[2] + "\n", "")
    both = _here(folder, "translate", "runs/tiny", "A dog.", "--input", "lines.txt")
    assert (both.returncode, "TEXT and --input exclude each other" in both.stderr) == (2, True)
    reduced = _here(folder, "translate", "runs/tiny", "--precision", "bf16", "--input", "single.txt")
    assert reduced.returncode == 0, reduced.stderr
    assert reduced.stdout.count("\n") == 1


def test_cli_n_best_lines_have_number_score_and_text(folder):
    (folder / "three.txt").write_text(SENTENCES)
    best = _here(folder, "translate", "runs/tiny", "--nbest", "3", "--beam", "4", "--input", "three.txt")
    rows = [line.split("\t") for line in best.stdout.rstrip("\n").split("\n")]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] + ["3"] * 3 + ["4"] * 3
    scores = [float(row[1]) for row in rows[:3]]
    assert scores == sorted(scores, reverse=True)


def test_cli_pipe_is_answered_line_by_line_before_it_ends_and_as_a_file_is(folder):
    (folder / "piped.txt").write_text(SENTENCES)
    filed = _here(folder, "translate", "runs/tiny", "--input", "piped.txt").stdout
    command = [sys.executable, "-m", "s2s.cli.main", "translate", "runs/tiny"]
    answered = ""
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for line in SENTENCES.splitlines(keepends=True):
            process.stdin.write(line)
            process.stdin.flush()
            # the pipe is still open: an answer now means that nothing was waited for
            answered += process.stdout.readline()
        process.stdin.close()
        assert process.wait(30) == 0
    assert answered == filed
    assert answered.count("\n") == 4


def test_cli_runs_are_compared_with_a_paired_test(folder):
    other = _here(folder, "train", "tiny.yaml", "run.dir=runs/other", "seeds.initialization=5")
    assert other.returncode == 0, other.stderr
    done = _here(folder, "evaluate", "runs/tiny", "runs/other", "--lowercase", "--json", "scores.json")
    assert done.returncode == 0, done.stderr
    assert "against the first" in done.stdout
    assert "case:lc" in done.stdout
    written = json.loads((folder / "scores.json").read_text())
    assert [e["run"] for e in written["evaluations"]] == ["runs/tiny", "runs/other"]
    assert {c["system"] for c in written["comparisons"]} == {"runs/tiny", "runs/other"}


def test_inspect_prints_draws_and_writes_attention_in_bertviz_shapes(folder):
    words = ["inspect", "runs/tiny", "The dog sleeps.", "--translation", "Der Hund schläft."]
    done = _here(folder, *words, "--output", "weights.json")
    assert done.returncode == 0, done.stderr
    (example,) = json.loads((folder / "weights.json").read_text())["examples"]
    assert (example["source"], example["output"]) == ("The dog sleeps.", "Der Hund schläft.")
    found = example["attention"]
    sizes = {"encoder": len(found["encoder_tokens"]), "decoder": len(found["decoder_tokens"])}
    assert "wrote weights.json\n" in done.stderr
    assert done.stdout.splitlines()[4].split()[:3] == ["output", "most", "attended"]
    told = [line.split()[0] for line in done.stdout.splitlines()[5:]]
    assert told[: sizes["decoder"]] == found["decoder_tokens"]
    for kind, target, source in (
        ("encoder", "encoder", "encoder"),
        ("decoder", "decoder", "decoder"),
        ("cross", "decoder", "encoder"),
    ):
        for layer in found[f"{kind}_attention"]:
            weights = torch.tensor(layer)
            assert weights.shape == (1, 2, sizes[target], sizes[source])
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-4, rtol=0)
    assert _here(folder, *words, "--output", "picture.png").returncode == 0
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_cli_alignments_are_a_line_each_and_those_of_the_weights(folder):
    (folder / "aligned.en").write_text("The dog sleeps.\n\nA cat.\n")
    (folder / "aligned.de").write_text("Der Hund schläft.\n\nEine Katze.\n")
    words = ["inspect", "runs/tiny", "--align", "--input", "aligned.en"]
    done = _here(folder, *words, "--reference", "aligned.de")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.split("\n")[:-1]
    # each target word has one link, whatever the pieces
    assert [sorted(int(link.split("-")[1]) for link in line.split()) for line in lines] == [[0, 1, 2], [], [0, 1]]
    assert all(int(link.split("-")[0]) < 3 for line in lines for link in line.split())
    own = _here(folder, *words, "--output", "own.align")
    assert own.returncode == 0
    assert len((folder / "own.align").read_text().split("\n")) == 4
    for reference in ("A.\n", "A.\n\nB.\nC.\n"):
        (folder / "unequal.de").write_text(reference)
        done = _here(folder, *words, "--reference", "unequal.de")
        assert (done.returncode, "not as many lines" in done.stderr) == (2, True)


def test_cli_byte_order_mark_is_no_text(folder):
    lines = b"The dog sleeps.\nA cat.\n"
    for name, before in (("plain.txt", b""), ("marked.txt", codecs.BOM_UTF8)):
        (folder / name).write_bytes(before + lines)
    plain, marked = (_here(folder, "translate", "runs/tiny", "--input", name) for name in ("plain.txt", "marked.txt"))
    assert marked.stdout == plain.stdout
    assert marked.returncode == plain.returncode == 0


def test_cli_compressed_lines_are_those_that_were_compressed(folder):
    packed = gzip.compress(SENTENCES.encode())
    contents = {"in.txt": SENTENCES.encode(), "in.txt.gz": packed, "in.xz": lzma.compress(SENTENCES.encode())}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    plain, *others = (_here(folder, "translate", "runs/tiny", "--input", name) for name in contents)
    assert plain.stdout.count("\n") == 4
    assert [(other.stdout, other.returncode) for other in others] == [(plain.stdout, 0)] * 2
    (folder / "cut.gz").write_bytes(packed[:-12])
    cut = _here(folder, "translate", "runs/tiny", "--input", "cut.gz", "--output", "cut.txt")
    assert (cut.returncode, "cut.gz: is damaged" in cut.stderr, (folder / "cut.txt").exists()) == (2, True, False)


def test_cli_run_may_have_an_equals_sign_in_its_name(folder):
    (folder / "runs/beam=2").symlink_to("tiny")
    named, own = (_here(folder, "evaluate", f"runs/{name}", "decoding.beam=1") for name in ("beam=2", "tiny"))
    assert named.stdout.startswith("runs/beam=2, checkpoint average, test: 12 sentences, beam 1")
    assert named.stdout.partition(",")[2] == own.stdout.partition(",")[2]


MISTAKES = [
    (["translate", "runs/tiny", "--checkpoint", "."], "no checkpoint '.'; available: 0000006, 0000012, average"),
    (["translate", "runs/tiny", "--checkpoint", ""], "no checkpoint ''; available: 0000006, 0000012, average"),
    (["translate", "runs/tiny", "--nbest", "9"], "--beam 9"),
    (["translate", "runs/tiny", "--task", ""], "does not apply to runs of translation"),
    (["evaluate", "runs/tiny", "data.test=null"], "has no test set"),
    (["evaluate", "runs/tiny", "decoding.beem=2"], "did you mean beam?"),
    (["train", "tiny.yaml", "run.dir=x", "device.kind=mps"], "device.kind"),
    (["train", "tiny.yaml", "run.dir=x", "batches.tokens=8"], "batches.tokens"),
    (["inspect", "runs/tiny", " "], "the sentence is empty"),
    (["inspect", "runs/tiny", "A cat.", "--output", "a.txt"], "unknown file name extension '.txt'"),
    (["inspect", "runs/tiny", "A cat.", "--row", "2"], "selects a test example, but INPUT is given"),
    (
        ["train", "tiny.yaml", "run.dir=x", "model={kind: rnn-tagger, width: 8}"],
        "generates one token for each source token",
    ),
    (["help"], "No such command 'help'.\nuse `s2s --help` or `s2s COMMAND --help`"),
    (["version"], "No such command 'version'.\nuse `s2s --version`"),
    (["doctor", "runs/tiny"], "No such command 'doctor'.\nuse `s2s diagnose RUN`"),
    (["translate", "runs/tiny", "--engine", "onnx"], "No such option '--engine'.\ns2s computes with torch"),
    (["evaluate", "runs/tiny", "decoding.beam=1", "decoding.beam=2"], "decoding.beam is set twice"),
    (["evaluate", "runs/tiny", "decoding.beam=1", "--beam", "2"], "decoding.beam is set twice"),
    (["train", "tiny.yaml", "run.dir=x", "model.width=8", "model.width=16"], "model.width is set twice"),
    (["inspect", "runs/tiny", "A cat.", "--reference", "a.de"], "--reference: has no effect without --align"),
    (["inspect", "runs/tiny", "A cat.", "--align"], "INPUT: has no effect with --align\n  → align the lines of a file"),
    (["train", "tiny.yaml", "--resume"], "tiny.yaml: is not a run but a recipe\n  → name the folder of its run"),
    (["evaluate", "runs/tiny", "--hypotheses", "tiny.yaml"], "RUN cannot be combined with --hypotheses"),
    (["evaluate", "runs/tiny", "--metric", "blue"], "--metric: 'blue' is no metric\n  → did you mean bleu"),
    (["evaluate", "runs/tiny", "--bias", "tiny.yaml", "--metric", "bleu"], "--metric cannot be combined with a probe"),
    (["evaluate", "runs/tiny", "--bias", "p.csv", "--beam", "2"], "--beam cannot be combined with a probe"),
    (["serve", "runs/none", "--seconds", "inf"], "'--seconds': 'inf' is not a finite number"),
    (["translate", "runs/tiny", "--length-penalty", "nan"], "'--length-penalty': 'nan' is not a finite number"),
    (["generate", "runs/tiny", "--temperature", "nan"], "'--temperature': 'nan' is not a finite number"),
    (["generate", "runs/tiny", "--top-p", "nan"], "'--top-p': 'nan' is not a finite number"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_cli_mistake_is_one_clear_message_and_exit_status_2(folder, words, message):
    done = _here(folder, *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "x").exists()


def test_cli_mistake_in_a_shell_is_the_same():
    shell, here = (run(Path(), "evaluate", "runs/none", "decoding.beam=2") for run in (_s2s, _here))
    assert (shell.returncode, shell.stdout, shell.stderr) == (here.returncode, here.stdout, here.stderr)


def test_cli_terminal_is_asked_for_each_line_once_the_model_is_there(folder):
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "s2s.cli.main", "translate", "runs/tiny"]
    pipes = {"stdin": theirs, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=folder, **pipes) as process:
        os.close(theirs)
        told = b""
        while not told.endswith(b"> "):
            told += process.stderr.read(1)
        assert told.startswith(b"loading runs/tiny")
        assert b"Ctrl-D" in told
        os.write(ours, b"The dog sleeps.\n")
        assert process.stdout.readline().endswith(b"\n")
        os.write(ours, b"The helicopter sleeps.\n")
        assert process.stdout.readline().endswith(b"\n")
        # outputs of a model with so little training reach the length limit, which is said, too
        lines = iter(process.stderr.readline, b"")
        line = next(line for line in lines if b"not in the training text" in line)
        assert b"'helicopter'" in line
        os.write(ours, b"\x04")
        assert process.wait(30) == 0
    os.close(ours)


def test_cli_resuming_says_so_before_anything_heavy_is_loaded(folder):
    code = (
        "import sys; from s2s.cli.main import commands\n"
        "class Stop:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise SystemExit(7)\n"
        "sys.meta_path.insert(0, Stop())\n"
        "commands(['train', 'runs/tiny', '--resume'], standalone_mode=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (7, "resuming runs/tiny: loading …\n"), done.stderr
