"""Candidates on the command line of `s2s compare`: models, each with optional settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ruamel.yaml.error import YAMLError

from s2s.comparison.candidate_names import file_name, kind_of, settings_in
from s2s.errors import UserError
from s2s.recipe.installed import models
from s2s.recipe.page import read_value
from s2s.recipe.reading import model_mistakes
from s2s.recipe.wording import cut, shown, suggestion
from s2s.run.tasks import schemas

Own = dict[str, dict[str, object]]
_EXAMPLE = "transformer:encoder_positions=rope,decoder_positions=rope"


def is_candidate(word: str) -> bool:
    """Return True if a word names a candidate, not a setting."""
    return "=" not in word or ":" in word.partition("=")[0]


def is_of_a_model(word: str) -> bool:
    """Return True if a setting is one of a model: `lstm.bidirectional=false`."""
    return word.partition(".")[0] in models()


def check_candidates(words: Sequence[str]) -> list[str]:
    """Check that the candidates are different and of installed models, and return their names.

    Raises:
        UserError: a model is not installed, or settings are badly written, or there are too few, or two are the same.
    """
    known = models()
    for word in words:
        kind = kind_of(word)
        if kind not in known:
            setting = "a setting is written with its value, as in training.updates=200" if "." in kind else ""
            raise UserError(f"{kind!r} is not an installed model", remedy=setting or suggestion(kind, list(known)))
        if ":" in word and not all("=" in text for text in (settings_in(word) or [""])):
            raise UserError(f"{shown(word)} is no model with settings", remedy=f"write it as {_EXAMPLE}")
    different = {(kind_of(word), tuple(sorted(_settings(word).items(), key=str))) for word in words}
    if len(words) < 2:
        raise UserError(
            f"a comparison needs two different models or more; given: {', '.join(words) or 'none'}",
            remedy="s2s compare rnn transformer; `s2s recipe models` lists what is installed",
        )
    if len(different) < len(words):
        raise UserError(
            f"a comparison needs different models; one is there twice: {', '.join(words)}",
            remedy=f"leave one out, or give it settings of its own: {_EXAMPLE}",
        )
    return list(words)


def own_settings(names: Sequence[str], of_models: Sequence[str], task: str) -> Own:
    """Return the settings of each candidate: its own before those of its model (`lstm.bidirectional=false`).

    Raises:
        UserError: a model is not compared, or a setting is wrong; all that are wrong are listed.
    """
    by_kind: Own = {}
    for word in of_models:
        kind, _, setting = word.partition(".")
        if kind not in map(kind_of, names):
            raise UserError(f"{kind} is not compared, so {word!r} says nothing", remedy=f"name {kind}, or leave it out")
        key, value = _read(setting, word)
        if key in by_kind.get(kind, {}):
            raise _twice(f"{kind}.{key}", word)
        by_kind.setdefault(kind, {})[key] = value
    own = {name: by_kind.get(kind_of(name), {}) | _settings(name) for name in names}
    mistakes = [text for name in names for text in _mistakes(name, own[name], task)]
    if mistakes:
        raise UserError("\n".join(dict.fromkeys(mistakes)))
    return {name: settings for name, settings in own.items() if settings}


def folder_of(names: Sequence[str], task: str = "") -> Path:
    """Return the default folder of a comparison."""
    name = "-".join(["compare", *map(file_name, names), *([task] if task else [])])
    # a file system takes 255 bytes
    return Path("runs") / (name if len(name) <= 200 else file_name(f"compare:{name}"))


def _settings(name: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for text in settings_in(name):
        key, value = _read(text, name)
        if key in found:
            raise _twice(key, name)
        found[key] = value
    return found


def _twice(key: str, words: str) -> UserError:
    return UserError(f"{key} is set twice", f"command line: {cut(words)}", "leave one of them out")


def _read(setting: str, word: str) -> tuple[str, object]:
    key, _, value = setting.partition("=")
    try:
        return key.strip(), read_value(value)
    except YAMLError:
        remedy = "write a plain word or number"
        raise UserError(f"{shown(value)} is not a YAML value", f"command line: {cut(word)}", remedy) from None


def _mistakes(name: str, own: Mapping[str, object], task: str) -> list[str]:
    try:
        found = model_mistakes(task, kind_of(name), own, schemas())
    except UserError:
        # a model that cannot take part says so in its cells
        return []
    return [f"command line: {cut(name)}: {key}: {what}" for key, what in found.items()]
