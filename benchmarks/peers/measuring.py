"""Rounds: all contestants in turn, and what they did is checked before it counts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.peers.contestants import Contestant, Failed, Player
from benchmarks.peers.task import SIDES, Pair, Task, lines

Measured = dict[str, Any]


def checked(answer: Measured, corpus: frozenset[Pair]) -> Measured:
    """An answer of training without its sentences, when these are the corpus' own and all of them were counted.

    Raises:
        Failed: a sentence is not, or the tokens are not those of the sentences with their ends.
    """
    pairs = [(source, target) for source, target in answer["pairs"]]
    strange = next((pair for pair in pairs if pair not in corpus), None)
    if strange:
        raise Failed(f"learns from {strange}, which is no pair of the corpus")
    tokens = sum(len(target.split(" ")) + 1 for _, target in pairs)
    if tokens != answer["tokens"]:
        raise Failed(f"counts {answer['tokens']} target tokens, where its sentences have {tokens}")
    return {key: value for key, value in answer.items() if key != "pairs"} | {"sentences": len(pairs)}


def counted(answer: Measured, sentences: int, first: Sequence[str] | None) -> Measured:
    """An answer of decoding with what was written counted, and compared with what another one wrote.

    Raises:
        Failed: there are not as many translations as sentences.
    """
    outputs = answer["outputs"]
    if len(outputs) != sentences:
        raise Failed(f"writes {len(outputs)} translations of {sentences} sentences")
    written = {"sentences": sentences, "tokens": sum(len(text.split()) + 1 for text in outputs)}
    same = {} if first is None else {"same": sum(map(str.__eq__, outputs, first))}
    return {key: value for key, value in answer.items() if key != "outputs"} | written | same


class Contest:
    """The rounds of one part.

    Args:
        players: who takes part, by contestant.
        task: what all were given.
        told: says what goes on.
    """

    def __init__(self, players: dict[Contestant, Player], task: Task, told: Callable[[str], None]) -> None:
        self.players = players
        self.task = task
        self.told = told
        self._corpus = frozenset(task.pairs)
        self._sentences = len(lines(task.side("test", SIDES[0])))
        self._first: list[str] | None = None

    def warm(self, measured: Measured) -> None:
        """Starts everybody, one after the other, for a turn that does not count; notes who cannot."""
        for one in list(self.players):
            if str(one) in measured["missing"]:
                del self.players[one]
                continue
            found = self._tried(one, measured["warmup"], measured)
            if found:
                measured["warmed"][str(one)] = found
                self.told(f"  {one}: ready after {found['wall']:.1f} s")

    def round(self, number: int, measured: Measured) -> None:
        """A turn of everybody; who begins moves on from round to round. Who cannot go on is in no round."""
        order = list(self.players)
        first = number % len(order)
        made = {str(one): self._tried(one, measured["updates"], measured) for one in [*order[first:], *order[:first]]}
        measured["rounds"].append({name: found for name, found in made.items() if found})

    def _tried(self, one: Contestant, updates: int, measured: Measured) -> Measured | None:
        try:
            return self._turn(one, updates)
        except Failed as error:
            self.told(f"  {one}: {error}")
            note(measured, one, str(error))
            del self.players[one]
            return None

    def _turn(self, contestant: Contestant, updates: int) -> Measured:
        player = self.players[contestant]
        answer = player.turn(updates)
        if player.part == "training":
            return checked(answer, self._corpus)
        if self._first is None:
            self._first = answer["outputs"]
        return counted(answer, self._sentences, self._first)


def note(measured: Measured, one: Contestant, why: str) -> None:
    """Takes a contestant out of all rounds, and says why."""
    measured["missing"][str(one)] = why
    for turn in measured["rounds"]:
        turn.pop(str(one), None)


def measure(contest: Contest, measured: Measured, rounds: int, save: Callable[[], None]) -> None:
    """All rounds that are still missing, each saved when it is over; who has not learned by then did not train."""
    if len(measured["rounds"]) >= rounds:
        return
    with _stopped(contest.players):
        contest.warm(measured)
        for number in range(len(measured["rounds"]), rounds):
            contest.round(number, measured)
            save()
            contest.told(f"  round {number + 1} of {rounds}")
    for one in contest.players:
        before, after = measured["warmed"][str(one)].get("loss"), measured["rounds"][-1][str(one)].get("loss")
        if before is not None and not after < before:
            note(measured, one, f"its loss was {before:.3f} at first and {after:.3f} at last")
    save()


@contextmanager
def _stopped(players: dict[Contestant, Player]) -> Iterator[None]:
    every = list(players.values())
    try:
        yield
    finally:
        for player in every:
            player.stop()


def players_of(
    contestants: Sequence[Contestant], part: str, task: Path, environments: Path, threads: int
) -> dict[Contestant, Player]:
    """A process for each, not yet started."""
    return {
        one: Player(one, part, task, environments, task / "scratch" / f"{part}-{one.module}-{one.form}", threads)
        for one in contestants
    }
