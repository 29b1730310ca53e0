"""A server under load: python -m benchmarks.serving RUN [--clients 32] [--rounds 3] [--requests 10000].

Starts `s2s serve RUN`, and lets locust (`pip install locust`) send one sentence a request, in turns with one client and
with many; then with many until so many requests are answered, while the server's memory is looked at. Ratios are of
neighbouring rounds. Writes docs/results/serve.json and the table of docs/serving.md; with --out FILE, that file alone.
"""

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.keeping import RESULTS, Told, asked, machines, write, write_tables
from s2s.data.phrasebook import phrases
from s2s.run.manifest import git_commit, processor_name

_SENTENCES = 500


@contextmanager
def server(run: Path) -> Iterator[str]:
    """A server of a run in a process of its own; its address."""
    command = [sys.executable, "-m", "s2s", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        told = next(line for line in process.stderr if line.startswith("serving"))
        yield re.search(r"http://[^;\s]+", told)[0]
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def metric(address: str, name: str) -> float:
    """A number that the server tells."""
    with urllib.request.urlopen(f"{address}/metrics") as answer:
        rows = answer.read().decode().splitlines()
    return sum(float(row.rsplit(" ", 1)[1]) for row in rows if row.startswith(name))


def load(address: str, sentences: Path, clients: int, seconds: float) -> Told:
    """What so many clients see in so many seconds: requests, failures, requests a second, milliseconds."""
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("serving_clients.py"))]
    users = f"-u {clients} -r {clients} -t {seconds:g}s"
    command += ["--headless", "--json", "--host", address, *users.split()]
    environment = os.environ | {"S2S_SENTENCES": str(sentences)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (found,) = json.loads(done.stdout[done.stdout.index("[") :]) or [None]
    times = sorted((float(ms), count) for ms, count in found["response_times"].items())
    return {
        "clients": clients,
        "requests": found["num_requests"],
        "failures": found["num_failures"],
        "per_second": found["num_requests"] / (found["last_request_timestamp"] - found["start_time"]),
        "p50": _percentile(times, 0.5),
        "p99": _percentile(times, 0.99),
    }


def _percentile(times: list[tuple[float, int]], share: float) -> float:
    wanted, seen = share * sum(count for _, count in times), 0
    for milliseconds, count in times:
        seen += count
        if seen >= wanted:
            return milliseconds
    return float("nan")


def measure(run: Path, clients: int, rounds: int, seconds: float, requests: int) -> Told:
    """All that is told of a run's server."""
    with tempfile.TemporaryDirectory() as folder, server(run) as address:
        sentences = Path(folder) / "sentences.txt"
        texts = [phrase.source for phrase in phrases("test", _SENTENCES, seed=7)]
        sentences.write_text("\n".join(texts) + "\n", encoding="utf-8")
        load(address, sentences, clients, min(seconds, 5))
        turns = []
        for _ in range(rounds):
            turns.append(tuple(load(address, sentences, number, seconds) for number in (1, clients)))
        memory = []
        while not memory or memory[-1][0] < requests:
            answered = metric(address, 's2s_requests_total{path="/translate",status="200"}')
            memory.append((int(answered), round(metric(address, "process_resident_memory_bytes") / 2**20, 1)))
            if answered < requests:
                turns_on = load(address, sentences, clients, seconds)
                turns[-1][1]["failures"] += turns_on["failures"]
        lines = metric(address, "s2s_batch_lines_sum") / max(1, metric(address, "s2s_batch_lines_count"))
    commit = git_commit()
    return {
        "command": f"benchmarks/serving.py {run.name} --clients {clients} --rounds {rounds} --requests {requests}",
        "run": run.name,
        "machine": f"{processor_name()}, {os.cpu_count()} cores shared with other work, "
        f"{torch.get_num_threads()} threads",
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit["commit"] if commit else "",
        "one": [one for one, _ in turns],
        "many": [many for _, many in turns],
        "ratios": [many["per_second"] / one["per_second"] for one, many in turns],
        "lines_a_batch": lines,
        "memory": memory,
    }


def table(found: Told) -> str:
    """What is told, for the page."""
    rows = ["| clients | requests | failures | requests a second | p50 | p99 |", "|---|---|---|---|---|---|"]
    for name in ("one", "many"):
        each = found[name]
        middle = {key: statistics.median(one[key] for one in each) for key in ("per_second", "p50", "p99")}
        total = {key: sum(one[key] for one in each) for key in ("requests", "failures")}
        rows.append(
            f"| {each[0]['clients']} | {total['requests']:,} | {total['failures']} | {middle['per_second']:.1f} "
            f"| {middle['p50']:.0f} ms | {middle['p99']:.0f} ms |"
        )
    ratios, memory = found["ratios"], found["memory"]
    return "\n".join(
        [
            *rows,
            "",
            f"Medians of {len(ratios)} rounds in turns. Together {statistics.median(ratios):.1f} times as many "
            f"requests a second as one at a time ({min(ratios):.1f} to {max(ratios):.1f}); "
            f"{found['lines_a_batch']:.1f} lines a batch on average. "
            f"Memory: {memory[0][1]:.0f} MiB after {memory[0][0]:,} requests, "
            f"{memory[-1][1]:.0f} MiB after {memory[-1][0]:,}, {max(size for _, size in memory):.0f} MiB at most.",
            machines([found]),
            "",
        ]
    )


def main() -> None:
    parser = asked(__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = measure(given.run, given.clients, given.rounds, given.seconds, given.requests)
    write(given.out or RESULTS / "serve.json", found)
    print(table(found))
    if given.out is None:
        write_tables({"docs/serving.md": table(found)}, "serving")


if __name__ == "__main__":
    main()
