"""The benchmark against other toolkits, without these toolkits."""

import json
import math
from pathlib import Path

import pytest
import torch
from scipy import stats

from benchmarks import training
from benchmarks.keeping import written
from benchmarks.peers import ctranslate2, eole, joeynmt, marian, ours, task, telling, turns
from benchmarks.peers.contestants import Contestant, Failed
from benchmarks.peers.measuring import Contest, checked, counted, measure
from benchmarks.peers.task import SPECIALS, Task
from s2s.data.batches import collate
from s2s.models.transformer import Settings, build

ROOT = Path(__file__).parents[1]
PIECES = [*SPECIALS, "▁a", "▁dog", "s", "▁ein", "▁Hund", "."]
PAIRS = [([4, 5, 6], [7, 8]), ([5], [8, 9, 9, 9]), ([4], [7])]
WRITER = "peers/__main__"


@pytest.fixture
def given(tmp_path) -> Task:
    found = Task(tmp_path)
    found.vocabulary.write_text("\n".join(PIECES[len(SPECIALS) :]) + "\n", encoding="utf-8")
    for part in ("train", "test"):
        for number, side in enumerate(task.SIDES):
            text = "".join(" ".join(PIECES[i] for i in pair[number]) + "\n" for pair in PAIRS)
            found.side(part, side).write_text(text, encoding="utf-8")
    found.planned.write_text(json.dumps({"tokens": 512, "batches": [[0, 1, 2]]}))
    return found


def _sizes(width: int, heads: int, inner: int, layers: tuple[int, int], dropout: float) -> tuple[object, ...]:
    return width, heads, inner, layers, dropout


def test_peers_every_configuration_says_the_same_sizes(given, tmp_path):
    joey, other = joeynmt.config(given, tmp_path), eole.config(given, tmp_path, "fp32")
    sides, transformer = joey["model"], other["model"]
    hugging = marian.config(len(given.pieces))
    wanted = _sizes(task.WIDTH, task.HEADS, task.INNER, (task.LAYERS, task.LAYERS), task.DROPOUT)
    for side in (sides["encoder"], sides["decoder"]):
        layers = tuple(sides[name]["num_layers"] for name in ("encoder", "decoder"))
        assert _sizes(side["hidden_size"], side["num_heads"], side["ff_size"], layers, side["dropout"]) == wanted
        assert side["embeddings"]["embedding_dim"] == task.WIDTH
    layers = (transformer["layers"],) * 2
    found = transformer["hidden_size"], transformer["heads"], transformer["transformer_ff"], layers
    assert _sizes(*found, other["training"]["dropout"][0]) == wanted
    for side in ("encoder", "decoder"):
        found = hugging["d_model"], hugging[f"{side}_attention_heads"], hugging[f"{side}_ffn_dim"]
        layers = hugging["encoder_layers"], hugging["decoder_layers"]
        assert _sizes(*found, layers, hugging["dropout"]) == wanted
    assert (*wanted[:3], task.LAYERS) == (training.WIDTH, training.HEADS, training.INNER, training.LAYERS)
    assert hugging["vocab_size"] == len(PIECES)
    assert joey["training"]["batch_size"] == other["training"]["batch_size"] == given.tokens == 512
    assert joey["training"]["label_smoothing"] == other["training"]["label_smoothing"] == task.SMOOTHING


def test_peers_every_search_has_the_same_beam_and_batch(given, tmp_path):
    found = joeynmt.config(given, tmp_path)["testing"]
    own, other = ours.decoding_settings(), ctranslate2.options()
    assert {found["beam_size"], own["beam"], other["beam_size"]} == {task.BEAM}
    assert {found["batch_size"], own["batch"], other["max_batch_size"]} == {task.BATCH}
    assert {found["beam_alpha"], own["length_penalty"], other["length_penalty"]} == {task.PENALTY}


def test_peers_trained_model_has_a_place_for_each_tensor_in_joeynmt():
    model = build(Settings(width=8, heads=2, feedforward=8, encoder_layers=2, decoder_layers=2), 20, 20)
    names = list(model.state_dict())
    found = [joeynmt.renamed(name) for name in names]
    assert len(set(found)) == len(names)
    # of each name only the number of the layer and what a Linear or a norm calls its tensors may stay
    kept = ("encoder", "decoder", "layers", "weight", "bias", "0", "1", "feedforward")
    ours_alone = {part for name in names for part in name.split(".")} - set(kept)
    assert not ours_alone & {part for name in found for part in name.split(".")}


def test_peers_sentences_are_named_and_counted_as_the_corpus_has_them(given):
    batch = collate([source for source, _ in PAIRS], [target for _, target in PAIRS], range(3))
    pairs = turns.named_pairs(batch.source, batch.target_out, given.pieces)()
    assert pairs == given.pairs
    answer = {"tokens": batch.tokens, "pairs": [list(pair) for pair in pairs], "wall": 1.0}
    assert checked(answer, frozenset(given.pairs)) == {"tokens": batch.tokens, "wall": 1.0, "sentences": 3}
    # with the padding; without the ends
    for wrong in (batch.target_out.numel(), batch.tokens - 3):
        with pytest.raises(Failed, match=f"counts {wrong} target tokens, where its sentences have {batch.tokens}"):
            checked(answer | {"tokens": wrong}, frozenset(given.pairs))
    with pytest.raises(Failed, match="no pair of the corpus"):
        checked(answer | {"pairs": [["▁a ▁dog", pairs[0][1]]]}, frozenset(given.pairs))


def test_peers_target_without_its_end_is_no_sentence_of_the_corpus(given):
    targets = torch.tensor([[7, 8, 2, 0], [7, 8, 0, 0]])
    (_, whole), (source, cut) = turns.named_pairs(targets, targets, given.pieces)()
    assert (whole, cut) == ("▁ein ▁Hund", "▁ein ▁Hund (no end)")
    assert source == "▁ein ▁Hund"


def test_decoded_tokens_include_end_tokens():
    found = counted({"wall": 1.0, "outputs": ["▁ein ▁Hund", "", "▁ein"]}, 3, ["▁ein ▁Hund", "", "."])
    assert found == {"wall": 1.0, "sentences": 3, "tokens": 6, "same": 2}
    with pytest.raises(Failed, match="1 translations of 3"):
        counted({"outputs": [""]}, 3, None)


class Pretended:
    """A player that ends after so many turns; its loss is 1 / turn."""

    part = "training"

    def __init__(self, lives: int, given: Task) -> None:
        self.lives, self.given, self.turns = lives, given, 0

    def turn(self, number: int) -> dict[str, object]:
        self.turns += 1
        if self.turns > self.lives:
            raise Failed("dead")
        tokens = sum(len(target) + 1 for _, target in PAIRS)
        told = {"updates": number, "tokens": tokens, "positions": 15, "loss": 1 / self.turns, "pairs": self.given.pairs}
        return told | {"wall": 1.0, "processor": 2.0}

    def stop(self) -> None:
        self.turns = -1000


def _contest(given: Task, lives: int = 99) -> Contest:
    players = {Contestant(name, "fp32", name): Pretended(lives if name == "b" else 99, given) for name in "abc"}
    return Contest(players, given, lambda said: None)


def _begun() -> dict:
    return {"updates": 4, "warmup": 1, "warmed": {}, "missing": {}, "rounds": []}


def test_peers_measurement_that_was_stopped_goes_on_where_it_was_saved(given):
    whole, saved, stopped = _begun(), [], _begun()
    measure(_contest(given), whole, 3, lambda: None)

    def save() -> None:
        saved.append(json.dumps(stopped))
        if len(stopped["rounds"]) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(_contest(given), stopped, 3, save)
    goes_on = json.loads(saved[-1])
    measure(_contest(given), goes_on, 3, lambda: None)
    assert len(goes_on["rounds"]) == len(whole["rounds"]) == 3
    assert [list(turn) for turn in goes_on["rounds"]] == [list(turn) for turn in whole["rounds"]]
    # everybody begins once
    assert [next(iter(turn)) for turn in whole["rounds"]] == ["a, fp32", "b, fp32", "c, fp32"]


def test_failed_peer_is_left_out_and_named(given):
    found = _begun()
    measure(_contest(given, lives=2), found, 3, lambda: None)
    assert found["missing"] == {"b, fp32": "dead"}
    assert [sorted(turn) for turn in found["rounds"]] == [["a, fp32", "c, fp32"]] * 3
    measure(_contest(given), found, 4, lambda: None)
    assert sorted(found["rounds"][3]) == ["a, fp32", "c, fp32"]


def test_peer_that_does_not_learn_is_named(given, monkeypatch):
    contest, found = _contest(given), _begun()
    player = next(iter(contest.players.values()))
    monkeypatch.setattr(player, "turn", lambda number: Pretended(99, given).turn(number))
    measure(contest, found, 2, lambda: None)
    assert found["missing"] == {"a, fp32": "its loss was 1.000 at first and 1.000 at last"}


def _measured(given: Task, names: tuple[str, ...], factors: list[float]) -> dict:
    """Everybody twice as slow as the one before, on the processor four times; rounds vary for all but the first."""
    rounds = []
    for factor in factors:
        turn = {}
        for i, name in enumerate(names):
            wall = 2.0**i * (factor if i else 1.0)
            turn[name] = {"tokens": 1000, "positions": 1250, "sentences": 100, "wall": wall, "processor": 4.0**i}
            turn[name] |= {"same": 90, "updates": 4}
        rounds.append(turn)
    return _begun() | {"rounds": rounds}


def test_peers_ratios_are_of_neighbours_and_their_intervals_over_rounds(given):
    factors = [1.0, 1.1, 1.3, 0.9]
    found = _measured(given, ("a", "b"), factors)
    ratio = telling.ratio(found, "a", "b")
    logs = [math.log(2 * factor) for factor in factors]
    low, high = stats.t.interval(0.95, 3, sum(logs) / 4, stats.sem(logs))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx(tuple(map(math.exp, (sum(logs) / 4, low, high))))
    turned = telling.ratio(found, "b", "a")
    assert (1 / turned.value, 1 / turned.high, 1 / turned.low) == pytest.approx((ratio.value, ratio.low, ratio.high))
    processor = telling.ratio(found, "a", "b", "processor")
    assert (processor.value, processor.low, processor.high) == pytest.approx((4, 4, 4))


def test_tables_without_bf16_have_no_column_for_it(given):
    contestants = telling.TRAINING, telling.DECODING
    names = [tuple(str(one) for one in each if "bf16" not in one.form) for each in contestants]
    training, decoding = (_measured(given, each, [1.0, 1.1]) for each in names)
    found = {"training": training, "decoding": decoding, "environments": {}, "left_out": {}, "machine": "laptop"}
    found |= {"settings": {"instructions": {"ATEN_CPU_CAPABILITY": "avx2"}}, "threads": 2, "torch": "2", "date": ""}
    lines = telling.table(found | {"commit": "1234567"}).splitlines()
    assert not [line for line in lines if line.startswith("|") and "bf16" in line]
    rows = [line for line in lines if line.startswith("| JoeyNMT")]
    heads = [line for line in lines if "wall" in line]
    assert [row.count("|") for row in rows] == [head.count("|") for head in heads] == [7, 9]
    # JoeyNMT is the fifth in training, the fourth in decoding, each twice as slow as the one before
    assert f"{16 * 1.1**0.5:.1f}×" in rows[0]
    assert f"{8 * 1.1**0.5:.2f}×" in rows[1]
    assert "Machine: laptop, ATEN_CPU_CAPABILITY=avx2, 2 threads" in lines[-1]


def test_speed_page_has_the_kept_measurements():
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert page.count(f"<!-- benchmarks/{WRITER}.py writes this -->") == 1
    assert written(page, telling.kept_tables(ROOT / "docs" / "results"), WRITER) == page
