"""Invalid requests are refused without the model."""

from types import SimpleNamespace

import pytest

from s2s.errors import UserError
from s2s.serving.answering import GenerationRequest, RequestHandler
from s2s.serving.messages import Limits
from s2s.tasks.text_to_text.recipe import TextToTextRecipe


def _pairs(answers):
    return SimpleNamespace(objective="pairs", answers=answers)


def _run(corpora, task="text-to-text", sample=False):
    decoding = SimpleNamespace(beam=4, sample=sample)
    recipe = TextToTextRecipe.model_construct(decoding=decoding, data=SimpleNamespace(corpora=corpora))
    return SimpleNamespace(
        task=task, recipe=recipe, max_source_tokens=20, count_tokens=lambda lines, task: [len(line) for line in lines]
    )


@pytest.fixture
def answering():
    several = _run({"free": _pairs(None), "choice": _pairs(("yes", "no"))})
    return RequestHandler({"several": several, "one": _run({"choice": _pairs(("yes", "no"))})}, Limits(tokens=30))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (GenerationRequest("several"), r"task: is missing\n  → name one of free, choice"),
        (GenerationRequest("several", task="x"), r"task: the run has no task 'x'\n  → name one of free, choice"),
        (
            GenerationRequest("several", task="choice", beam=2),
            r"beam: the task has 2 answers .* no search\n  → leave it out",
        ),
        (GenerationRequest("several", task="choice", nbest=3), r"nbest: is 3; the task has 2 answers"),
        (
            GenerationRequest("several", task="free", nbest=5),
            r"nbest: is 5, but the beam holds 4\n  → set beam to 5 or more",
        ),
        ("one", r"run 'one': is a run of task text-to-text, which cannot classify\n  → ask /translate"),
    ],
)
def test_server_request_that_does_not_fit_its_run_is_refused_by_its_fields(answering, asked, told):
    with pytest.raises(UserError, match=told) as error:
        answering.check(asked, ["a"])
    assert "--" not in str(error.value)
    assert "`" not in str(error.value)


def test_server_width_of_a_request_is_that_of_its_longest_text_and_its_beam(answering):
    assert answering.check(GenerationRequest("several", task="free"), ["abc", "a"]) == 3 * 4
    assert answering.check(GenerationRequest("several", task="free", beam=2, nbest=2), ["abc", "a"]) == 3 * 2
    # no search: one row for each text
    assert answering.check(GenerationRequest("one"), ["abc"]) == 3


def test_server_samples_may_be_more_than_the_beam_holds():
    sampled = RequestHandler({"drawn": _run({"free": _pairs(None)}, sample=True)}, Limits(tokens=30))
    assert sampled.check(GenerationRequest("drawn", nbest=7), ["abc", "a"]) == 3 * 7
    assert [each.beam for each in sampled.served()] == [None]
    with pytest.raises(UserError, match="nbest: is 7, but the beam holds 2"):
        sampled.check(GenerationRequest("drawn", nbest=7, beam=2), ["abc"])


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["a" * 31], "the text has 31 tokens; at most 30"),
        (["a", "a" * 21], "text 2 has 21 tokens; the model has positions for 20"),
    ],
)
def test_server_texts_of_too_many_tokens_are_refused(answering, lines, told):
    with pytest.raises(UserError, match=told):
        answering.check(GenerationRequest("one"), lines)
