"""torch.nn.Transformer in the loop of benchmarks/training.py, on the batches of similar length that s2s has."""

from collections.abc import Iterator

from benchmarks.peers.ours import encoded
from benchmarks.peers.task import RATE
from benchmarks.peers.turns import Given, Turns, named_pairs, train
from benchmarks.training import sorted_batches, tutorial_loop
from s2s.data.batches import ParallelBatch
from s2s.data.tokenized import TokenizedDataset


def main() -> None:
    given = Given.read()
    pieces, data = given.task.pieces, encoded(given.task)
    read: list[ParallelBatch] = []

    def batches(corpus: TokenizedDataset) -> Iterator[ParallelBatch]:
        for batch in sorted_batches(corpus, given.task.tokens):
            read.append(batch)
            yield batch

    step = tutorial_loop(len(pieces), batches(data), given.form, RATE)

    def update(turns: Turns) -> None:
        tokens, loss = step()
        batch = read.pop()
        turns.learned(tokens, batch.target_out.numel(), loss, named_pairs(batch.source, batch.target_out, pieces))

    train(given, update)


if __name__ == "__main__":
    main()
