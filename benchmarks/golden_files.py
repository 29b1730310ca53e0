"""Read the files that s2s writes: tensors by hash, JSON without times, leaves by path."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

Record = Mapping[str, object]


def digest(value: object) -> str:
    """SHA-256 of bytes, or of a value as JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, ensure_ascii=False).encode()
    return hashlib.sha256(data).hexdigest()


def without_clock(value: object) -> object:
    """A value from JSON without wall-clock fields, machine, and hashes that s2s makes of weights and files."""
    dropped = {
        "weights",
        "digest",
        "machine",
        "machines",
        "codes",
        "commit",
        "date",
        "command",
        "format",
        "tensorboard",
    }
    if isinstance(value, Mapping):
        kept = {k: v for k, v in value.items() if k not in dropped and not k.endswith("seconds")}
        return {key: without_clock(each) for key, each in kept.items()}
    return [without_clock(each) for each in value] if isinstance(value, list) else value


def tensors(path: Path) -> dict[str, str]:
    """SHA-256 of every tensor in a safetensors file, with its shape and type."""
    from safetensors import safe_open
    from torch import uint8

    with safe_open(path, "pt") as file:
        each = {name: file.get_tensor(name).contiguous() for name in file.keys()}  # noqa: SIM118
    of = {name: digest(t.reshape(-1).view(uint8).numpy().tobytes()) for name, t in each.items()}
    return {name: f"{of[name]} {list(t.shape)} {t.dtype}" for name, t in each.items()}


def run_files(run: Path) -> Record:
    """Record the results of a training: tensors, metrics, state and test scores."""
    found: dict[str, object] = {}
    folders = sorted(path for path in (run / "checkpoints").glob("*") if path.is_dir())
    numbered = [path for path in folders if path.name.isdigit()]
    for path in [*numbered[-1:], *(path for path in folders if not path.name.isdigit())]:
        for file in sorted(path.glob("*.safetensors")):
            found[f"{path.name}/{file.stem}"] = tensors(file)
        state = json.loads((path / "state.json").read_text()) if (path / "state.json").exists() else None
        found[f"{path.name}/state"] = without_clock(state)
    metrics = [without_clock(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found["metrics.jsonl"] = digest(metrics)
    found["loss"] = [line["loss"] for line in metrics if isinstance(line, dict) and "loss" in line][-1]
    found["validation"] = [line["validation"] for line in metrics if isinstance(line, dict) and "validation" in line][
        -1
    ]
    for path in sorted(run.glob("evaluation-*.json")):
        leaves = dict(flat(without_clock(json.loads(path.read_text()))))
        found[path.name] = digest(leaves)
        found |= {key: value for key, value in leaves.items() if re.fullmatch(r"scores/\w+(/value)?", key)}
    return found


def flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """The leaves of nested mappings and lists, with their paths."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list):
        names = [_name(each) for each in value]
        unique = None not in names and len(set(names)) == len(names)
        items = zip(names, value, strict=True) if unique else enumerate(value)
    else:
        yield path, value
        return
    for key, each in items:
        yield from flat(each, f"{path}/{key}" if path else str(key))


def _name(value: object) -> str | None:
    """Return the key of a list element of a comparison: by question and model, by name, or by label."""
    if not isinstance(value, Mapping):
        return None
    keys = [key for key in ("row", "name", "label", "model") if value.get(key)]
    return " ".join(str(value[key]) for key in keys) or None
