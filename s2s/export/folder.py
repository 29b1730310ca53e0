"""Export folder: recipe, tokenizers and the model in another format."""

from dataclasses import replace
from pathlib import Path

from s2s.errors import UserError
from s2s.export.exportable import Format, check_exportable
from s2s.files import EXPORTED, UNFINISHED, copy_files, foreign_files, remove_unfinished, write_folder_atomically
from s2s.recipe.reading import without_folders, write
from s2s.recipe.schema import RunSettings
from s2s.run.exported import seal
from s2s.run.folder import MANIFEST, RECIPE, TOKENIZER, RunConfig, run_dir_of

# File names of all formats, and of evaluations and probes.
_OURS = (
    *(RECIPE, TOKENIZER, EXPORTED, MANIFEST, f"{UNFINISHED}*", "README.md", "model.safetensors", "pooler.safetensors"),
    *("model.bin", "config.json", "*_vocabulary.*", "*.spm", "onnx.json", "model.onnx", "start.onnx", "step.onnx"),
    *("evaluation-*.json", "figures", "probe-bias.*", "probe-induction.*"),
)


def check_place(folder: Path, overwrite: bool = False) -> None:
    """Refuse an output folder that is not empty, unless it is an export to overwrite."""
    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or (folder / EXPORTED).exists())):
        raise UserError("exists and is no export", where=f"--output {folder}", remedy="name another folder")
    where, another = f"--output {folder}", "name another folder"
    if (folder / EXPORTED).exists():
        if not overwrite:
            remedy = f"{another}, or replace it, and what was edited in it, with --overwrite"
            raise UserError("holds an export already", where, remedy)
        if some := foreign_files(folder, _OURS):
            what = f"holds what no export writes, and --overwrite would remove: {some}"
            raise UserError(what, where, f"{another}, or move that away")
    if not folder.resolve().parent.is_dir():
        raise UserError(f"there is no folder {folder.parent}", where=where, remedy="make it first")


def check_apart(run: RunConfig, folder: Path) -> None:
    """Refuse an output folder that overlaps with the folder of the run, which it would change."""
    place, source = folder.resolve(), run.path.resolve()
    home = run_dir_of(source)
    # Outside a run, the folder two levels up can be anything.
    source = home if (home / MANIFEST).exists() else source
    if place.is_relative_to(source) or source.is_relative_to(place):
        raise UserError(f"is, holds or lies in {run.path}, which is read", f"--output {folder}", "name another folder")


def export(
    run: RunConfig,
    to: Format,
    folder: Path,
    quantization: str | None = None,
    checkpoint: str | None = None,
    overwrite: bool = False,
) -> str:
    """Export a run, completely or not at all.

    Args:
        run: The opened run.
        to: Export format.
        folder: Folder to create.
        quantization: Number type of the weights, for CTranslate2; None: float32.
        checkpoint: `best`, `last`, `average` or a step number. None: the average if there is one, else the best.
        overwrite: Replace an existing export.

    Raises:
        UserError: The engine does not support the model or is not installed, or the folder is in use.
    """
    check_exportable(run.recipe, to, str(run.path))
    check_apart(run, folder)
    check_place(folder, overwrite)
    if quantization and to != "ctranslate2":
        raise UserError(f"does not apply to --to {to}", f"--quantization {quantization}", "leave it out")
    from s2s.export.sentencepiece import sentencepiece_files
    from s2s.run.inference import load

    loaded = load(run, checkpoint)
    loaded.model.cpu()
    remove_unfinished(folder.resolve().parent)
    with write_folder_atomically(folder, follow=True) as place:
        place.mkdir()
        # Where the run and its data lie is private.
        recipe = without_folders(loaded.recipe.model_copy(update={"run": RunSettings()}))
        write(recipe, place / RECIPE)
        models = {} if to == "hub" else sentencepiece_files(loaded.tokenizers)
        for name, model in models.items():
            (place / name).write_bytes(model)
        if loaded.tokenizers and not models:
            copy_files(loaded.checkpoint / TOKENIZER, place / TOKENIZER)
        needs_s2s = to != "hub" and (place / TOKENIZER).exists()
        if to == "ctranslate2":
            from s2s.export.ctranslate2 import save
            from s2s.models.base import Seq2Seq
            from s2s.tasks.translation.recipe import Recipe

            translator = loaded.narrow(Recipe, Seq2Seq)
            save(translator.model, loaded.recipe.model, loaded.tokenizers, place, quantization or "float32")
        if to == "onnx":
            from s2s.export.onnx import save as save_graphs

            sizes = [tokenizer.size for tokenizer in loaded.tokenizers] or [0]
            save_graphs(loaded.model, (sizes[0], sizes[-1]), place)
        if to == "hub":
            from s2s.export.hub import save as save_for_hub

            save_for_hub(replace(loaded, recipe=recipe), place)
        seal(place, to, loaded.checkpoint.name, quantization or "float32")
    size = sum(file.stat().st_size for file in folder.rglob("*")) / 2**20
    told = f"{folder}: checkpoint {loaded.checkpoint.name} for {to}, {size:.1f} MiB"
    return f"{told}; {TOKENIZER}/ needs s2s: SentencePiece has no such tokenizer" if needs_s2s else told
