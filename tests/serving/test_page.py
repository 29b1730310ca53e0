"""The server's page in a browser."""

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.serving.conftest import served

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HOSTILE = "<img src=x onerror=alert(1)> ${x} {{ 7 * 7 }}"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with playwright.sync_playwright() as engine:
        found = engine.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture
def page(browser, loaded):
    """The page of a server with three runs, two of which translate; what its scripts say, and whom it asks."""
    with served({"t": loaded["t"], "u": loaded["t"], "c": loaded["c"]}) as server:
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.said, page.asked = [], set()
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.add(request.url))
        page.goto(server.address)
        page.wait_for_selector("option", state="attached")
        yield page
        outside = {url for url in page.asked if not url.startswith((server.address, "data:"))}
        page.close()
        assert (page.said, outside) == ([], set())


def _sent(page, text: str) -> None:
    page.fill("#text", text)
    page.click("#send")
    page.locator("#told", has_text=re.compile(r"\d s$")).wait_for()


def _kept(page, name: str) -> None:
    """For human eyes, where S2S_SCREENSHOTS names a folder."""
    if folder := os.environ.get("S2S_SCREENSHOTS"):
        page.screenshot(path=str(Path(folder) / name))


def test_page_text_is_translated_and_pointing_at_a_piece_shows_where_the_model_looked(page, loaded):
    _sent(page, "A dog.\n\nThe man.")
    shown = [each.replace("⏎", "").strip() for each in page.locator(".target").all_inner_texts()]
    assert len(shown) == 2
    own = loaded["t"].candidates(["A dog."])[0][0].hypothesis.tokens
    weights = loaded["t"].looks("A dog.", own).weights[-1].mean(axis=0)
    row = page.locator(".one").first
    row.locator(".target .piece").nth(2).hover()
    titles = [piece.get_attribute("title") for piece in row.locator(".source .piece").all()]
    assert titles == [f"{100 * round(share, 4):.1f} %" for share in weights[2]]
    colours = [p.evaluate("each => each.style.background") for p in row.locator(".source .piece").all()]
    assert len(set(colours)) > 1
    _kept(page, "attention.png")
    row.locator(".source .piece").nth(0).focus()
    titles = [piece.get_attribute("title") for piece in row.locator(".target .piece").all()]
    assert titles == [f"{100 * round(share, 4):.1f} %" for share in weights[:, 0]]
    assert row.locator(".source .piece").nth(1).get_attribute("title") is None


def test_page_two_runs_and_two_beams_stand_side_by_side(page, loaded):
    page.fill("#nbest", "2")
    page.check("#compare")
    columns = page.locator(".column")
    assert columns.count() == 2
    assert columns.nth(1).locator("select").first.input_value() == "u"
    columns.nth(1).locator("input").fill("1")
    _sent(page, "A dog.")
    scores = [column.locator(".score").all_inner_texts() for column in columns.all()]
    for beam, nbest, shown in ((2, 2, scores[0]), (1, 1, scores[1])):
        own = loaded["t"].candidates(["A dog."], nbest=nbest, beam=beam)[0]
        assert shown == [f"score {candidate.score:.3f}" for candidate in own]
    left, right = (column.bounding_box() for column in columns.all())
    assert (left["y"], left["x"] + left["width"] <= right["x"]) == (right["y"], True)
    _kept(page, "beams.png")
    page.set_viewport_size({"width": 400, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.uncheck("#compare")
    assert columns.count() == 1


def test_page_class_is_shown_with_its_shares(page, loaded):
    page.locator("select").first.select_option("c")
    _sent(page, "text number 3")
    assert page.locator(".target").inner_text() == loaded["c"].classify(["text number 3"])[0]
    shares = sorted(loaded["c"].probabilities(["text number 3"])[0].values(), reverse=True)
    assert page.locator(".share .score").all_inner_texts() == [f"{100 * share:.1f} %" for share in shares]
    _kept(page, "classes.png")


def test_page_escapes_user_text(page):
    _sent(page, HOSTILE)
    assert page.locator(".column img").count() == 0
    assert page.locator(".source").first.inner_text().replace("\xa0", " ").startswith("<img src=x")


def test_page_shows_refusals(page):
    page.fill("#text", "a" * 2001)
    page.click("#send")
    page.wait_for_selector(".wrong")
    assert page.locator("#told").inner_text() == "the text has 2,001 characters; at most 2,000 are read"
    # the browser tells of the status itself
    page.said.clear()
