"""Export for the Hugging Face hub: the files of a run, and a model card."""

import json
import math
from io import StringIO
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from ruamel.yaml import YAML

from s2s.files import LARGE_BYTES
from s2s.json_files import read_json
from s2s.models.base import count_parameters
from s2s.recipe.reading import dump
from s2s.recipe.schema import RunSettings, TrainRecipe
from s2s.run import manifest
from s2s.run.folder import MANIFEST, run_dir_of
from s2s.run.published.description import HUB, POOLER
from s2s.run.tasks import schema_of
from s2s.tasks.base import AnyRun
from s2s.training.checkpoint import digest_of_weights
from s2s.training.tensor_files import read_weights, save_tensors, save_weights

CARD = "README.md"
# Pipeline tags of the hub.
_PIPELINES = {
    "translation": "translation",
    "text-to-text": "text2text-generation",
    "classification": "text-classification",
    "masked-lm": "fill-mask",
    "language-model": "text-generation",
    "images": "image-classification",
    "captioning": "image-to-text",
}
# Manifest fields to publish; command lines and paths stay private.
_KEPT = ("started", "python", "packages", "git", "device", "seeds", "parameters", "hashes", "counts")


def save(run: AnyRun, folder: Path) -> None:
    """Write weights, manifest and model card beside the recipe and the tokenizers.

    The pooler's weights are written if there are any. History and scores come from the run's folder; the card of a
    checkpoint outside a run has neither.
    """
    save_weights(run.model, folder / "model.safetensors")
    if (run.checkpoint / POOLER).exists():
        save_tensors(read_weights(run.checkpoint / POOLER), folder / POOLER)
    starts = [{key: start[key] for key in _KEPT} for start in manifest.read(run_dir_of(run.path) / MANIFEST)]
    if starts:
        (folder / MANIFEST).write_text(json.dumps(starts, indent=1) + "\n", encoding="utf-8")
    (folder / CARD).write_text(card(run, starts), encoding="utf-8")


def card(run: AnyRun, starts: list[dict[str, Any]]) -> str:
    """Create the model card in Markdown, with a YAML header of metadata for the hub."""
    recipe, scores = run.recipe, _scores(run)
    schema = schema_of(recipe)
    use = schema.use.format("hf:USER/NAME", schema.example).partition(":")[2].strip()
    head = StringIO()
    YAML().dump(_head(recipe, scores), head)
    parts = [
        f"---\n{head.getvalue()}---",
        f"# {recipe.name}",
        recipe.description or f"A model of kind {recipe.model.kind} for {recipe.task}.",
        f"{count_parameters(run.model):,} parameters, trained with s2s by the recipe below.",
        "## Use",
        "With s2s, installed in a copy of its repository (`pip install -e .`):",
        "```sh\n" + (use or "s2s evaluate hf:USER/NAME") + "\n```",
        "transformers and its pipelines cannot load this model: it is none of theirs.",
        "## Scores",
        "\n\n".join(f"```text\n{each['told']}\n```" for each in scores.values())
        or "No scores of these weights were kept.",
        "## Limits",
        "\n".join(f"- {line}" for line in _limits(recipe, starts)),
        "## Recipe",
        f"```yaml\n{dump(recipe.model_copy(update={'run': RunSettings()}))}```",
    ]
    return "\n\n".join(parts) + "\n"


def _scores(run: AnyRun) -> dict[str, Any]:
    """Return the saved scores of the published weights, by split."""
    scores, weights, again = {}, digest_of_weights(run.checkpoint), "evaluate the run again"
    for path in sorted(run_dir_of(run.path).glob("evaluation-*.json")):
        found = read_json(path, _StoredEvaluation, again, LARGE_BYTES)
        if (found.checkpoint, found.weights) != (run.checkpoint.name, weights):
            continue
        # The name of the folder, at the start, is private.
        told = run.recipe.name + found.summary.told.removeprefix(found.run)
        scores[path.stem.removeprefix("evaluation-")] = {"told": told, "scores": found.summary.scores}
    return scores


class _Summary(BaseModel):
    told: str
    scores: dict[str, float]


class _StoredEvaluation(BaseModel):
    """The fields of an `evaluation-*.json` that a card uses."""

    run: str
    checkpoint: str
    weights: str
    summary: _Summary


def _head(recipe: TrainRecipe, scores: dict[str, Any]) -> dict[str, Any]:
    head: dict[str, Any] = {"library_name": "s2s", "pipeline_tag": _PIPELINES.get(recipe.task, recipe.task)}
    head["tags"] = ["s2s", recipe.model.kind]
    data = recipe.data.model_dump()
    corpora = [data, *_further(data).values()]
    sides = dict.fromkeys(each.get(side) for each in corpora for side in ("source", "target"))
    if languages := [side for side in sides if len(str(side or "")) == 2]:
        head["language"] = languages
    if datasets := [name for name in dict.fromkeys(str(each.get("corpus", "")) for each in corpora) if "/" in name]:
        head["datasets"] = datasets
    results = [
        {
            "task": {"type": head["pipeline_tag"]},
            "dataset": {"name": data.get("corpus", recipe.task), "type": data.get("corpus", "files"), "split": split},
            "metrics": [
                {"type": name, "value": round(value, 4)}
                for name, value in each["scores"].items()
                if math.isfinite(value)
            ],
        }
        for split, each in scores.items()
    ]
    if results:
        head["model-index"] = [{"name": recipe.name, "results": results}]
    return head


def _limits(recipe: TrainRecipe, starts: list[dict[str, Any]]) -> list[str]:
    """List limitations that follow from the recipe."""
    data, model = recipe.data.model_dump(), recipe.model.model_dump()
    count = starts[-1]["counts"].get("train") if starts else None
    learned = f"{count:,} examples" if count else "the training part"
    names = [data["corpus"]] if data.get("corpus") else []
    names += [f"{name} ({each['corpus']})" for name, each in _further(data).items()]
    rest = "from nothing else"
    if began := getattr(recipe, "init_from", None):
        # Parent folders are private.
        name = began if str(began).startswith(HUB) else Path(began).name
        rest = f"from what {name} had learned from, with which it began"
    found = [f"It has learned from {learned} of {', '.join(names)}, and {rest}: what is unlike them is guessed."]
    longest = recipe.batches.model_dump().get("max_length")
    if longest:
        found.append(f"In training no text had more than {longest:,} pieces; what happens beyond was not measured.")
    if "learned" in (model.get("encoder_positions"), model.get("decoder_positions")):
        found.append(f"It cannot read or write more than {model['max_positions']:,} positions.")
    found.append("The scores are of the parts that they name. Nobody has measured what it says of people, or bias.")
    found.append("Weights made from data are under the terms of the data; this card does not know them.")
    return found


def _further(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the named corpora of a data section."""
    return data.get("more") or data.get("corpora") or {}
