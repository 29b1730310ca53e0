"""The page says all that was found, to eyes and to machines, and needs nothing else."""

import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from s2s.comparison.plans import CLAIMS, PLANS, ROWS
from s2s.comparison.report.claims import command_for, undecided
from s2s.comparison.report.drawing import write_claims
from s2s.comparison.report.page import page as render
from s2s.comparison.report.table import ARROWS, LABELS, describe, stays_with
from s2s.comparison.results import CandidateSummary, Failure, Summary

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
VOID = ("meta", "col", "br", "input", "link", "img", "hr")


class Node:
    """An element: its name, attributes, and what is in it."""

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name, self.attributes, self.parts = name, attributes, []

    def all(self, name: str = "", **attributes: str) -> list["Node"]:
        """Elements below it of that name and with these attributes."""
        found = []
        for part in self.parts:
            if isinstance(part, Node):
                fits = all(part.attributes.get(key.strip("_")) == value for key, value in attributes.items())
                found += [part] if fits and name in ("", part.name) else []
                found += part.all(name, **attributes)
        return found

    def one(self, name: str = "", **attributes: str) -> "Node":
        """The only such element."""
        (found,) = self.all(name, **attributes)
        return found

    @property
    def text(self) -> str:
        """What one reads, with single spaces."""
        parts = [part if isinstance(part, str) else part.text for part in self.parts]
        return " ".join(" ".join(parts).split())


class Tree(HTMLParser):
    """Reads a page, strictly: what is opened is closed in turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self.open = [self.root]
        self.feed(text)
        assert self.open == [self.root]

    def handle_starttag(self, tag, attrs):
        node = Node(tag, dict(attrs))
        self.open[-1].parts.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].parts.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop().name == tag

    def handle_data(self, data):
        self.open[-1].parts.append(data)


@pytest.fixture(scope="module")
def text(drawn_folder) -> str:
    return (drawn_folder / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text) -> Node:
    return Tree(text).root


def _check_complete(page: Node, summary, results, models) -> None:
    """Every row, figure, table and failure of the results is there."""
    table = page.one("table", class_="classroom")
    assert [cell.text.split(" ", 1)[1] for cell in table.one("thead").all("th")[1:-1]] == models
    findings = {(f.row, f.model): f for result in results for f in result.findings}
    asked = {name: row for name, row in ROWS.items() if row.experiment in summary.experiments}
    rows = dict(zip(asked, table.all("tbody"), strict=True))
    for name, body in rows.items():
        assert name in body.one("th").text
        assert body.one("td", class_="others").text == asked[name].literature
        boxes = [cell for cell in body.all("td") if "data-model" in cell.attributes]
        if asked[name].experiment == "gradients":
            assert body.one("td", class_="empty").text == "not finished"
            assert not boxes
            continue
        assert [box.attributes["data-model"] for box in boxes] == models
        words = page.one("details", id=f"words-{name.replace(' ', '-')}")
        for model, box, said in zip(models, boxes, words.one("tbody").all("tr"), strict=True):
            finding = findings.get((name, model))
            assert said.one("th").text == model
            if finding is None:
                assert box.text == "not measured"
                continue
            expected = "failed" if finding.failed else finding.standing or "measured"
            assert box.one(class_="word").text == LABELS.get(expected, expected)
            assert finding.failed or describe(finding) in said.text
            assert bool(box.all(class_="value")) is (finding.value is not None)
            if finding.failed:
                assert f"failed: {finding.failed}" in said.text
            for variation in finding.variations:
                assert variation in said.text
        for link in words.all("a", class_="see"):
            key = link.attributes["href"].removeprefix("#")
            assert page.one("figure", id=key).one("figcaption").text.startswith(link.text)
    _check_claims(page, results, models)
    for result in results:
        section = page.one("section", id=f"experiment-{result.experiment}")
        for figure in result.figures:
            # beside the table, or in the appendix
            _check_figure(page.one("figure", id=f"figure-{result.experiment}-{figure.name}"), figure)
        for part in result.tables:
            shown = section.one("table", id=f"table-{result.experiment}-{part.name}")
            assert part.title in shown.one("caption").text
            assert len(shown.one("tbody").all("tr")) == len(part.rows)
            assert all(len(row.parts) == len(part.columns) for row in shown.one("tbody").all("tr"))
        for failure in result.failures:
            assert failure.reason in section.one(class_="failures").text


def _check_claims(page: Node, results, models) -> None:
    """Every claim has its verdict, its sentence, and a number of each model, in the order of the numbers."""
    table = page.one("table", class_="claims")
    heads = table.one("thead").all("th")[2:-1]
    assert [cell.text.split(" ", 1)[1].removesuffix(" scan + attention") for cell in heads] == models
    assert any(cell.text.endswith(" scan + attention") for cell in heads)
    claims = {claim.name: claim for result in results for claim in result.claims}
    bodies = table.all("tbody")
    assert [body.attributes["id"] for body in bodies] == [f"claim-{name}" for name in CLAIMS if name in claims]
    for body in bodies:
        claim = claims[body.attributes["id"].removeprefix("claim-")]
        assert body.one("th").text == f"{CLAIMS[claim.name].number} {CLAIMS[claim.name].sentence}"
        assert body.one("td", class_="answer").text.split()[-1] == claim.verdict
        assert claim.sentence in body.text
        assert claim.measured in body.text
        assert [arrow.text for arrow in body.all("b", class_="arrow")] == [*ARROWS[CLAIMS[claim.name].good]]
        cells = {cell.attributes["data-model"]: cell.text for cell in body.all("td") if "data-model" in cell.attributes}
        assert list(cells) == models
        known = {each.model: each for each in claim.numbers}
        for model, cell in cells.items():
            note = known[model].note if model in known else "–"
            marked = note == "still learning" and known[model].value is not None
            assert cell.endswith("†") if marked else note in cell and "†" not in cell
        details = body.one("details").text
        assert stays_with(claim.stable) in details
        (link,) = (node for node in body.all("a") if "Figure" in node.text)
        assert page.one("figure", id=link.attributes["href"][1:]).one("figcaption").text.startswith(link.text)
    assert all(text.sentence in page.one("section", id="claims").text for text in CLAIMS.values())


def _check_figure(shown: Node, figure) -> None:
    assert figure.title in shown.one("figcaption").text
    sides = 2 if figure.x.log or figure.y.log else 1
    assert len(shown.all("svg", role="img")) == len(shown.all("script")) == sides
    for svg in shown.all("svg"):
        assert svg.attributes["aria-label"].startswith(figure.title)
        drawn = svg.text
        # a legend breaks long names into lines
        assert all(one.label[:12] in drawn for one in figure.series)
        assert all(one.label[:12] in drawn for one in figure.heatmaps)
    spots = json.loads(shown.all("script")[-1].text)["spots"]
    values = [y for one in figure.series for y in one.y if y is not None]
    assert len(spots) == len(values)
    tables = shown.one("details", class_="numbers").all("table")
    assert len(tables) == max(1, len(figure.heatmaps))
    filled = [cell.text for table in tables for row in table.one("tbody").all("tr") for cell in row.all("td")]
    numbers = len([text for text in filled if text not in ("", "–")])
    guides = sum(len(one.x) for one in figure.series if one.reference and len(one.x) == 2)
    assert numbers == len(values) - guides + sum(
        v is not None for one in figure.heatmaps for row in one.values for v in row
    )


def test_page_has_every_cell_figure_and_table(page, found, models):
    _check_complete(page, *found, models)


def test_page_failed_cell_has_its_reason(page, found, models):
    failed = [(f, r) for r in found[1] for f in r.findings if f.failed]
    cells = [cell.text for cell in page.one("section", id="table").all("span", class_="failed")]
    assert cells == [f"failed: {finding.failed}" for finding, _ in failed]
    assert len(cells) == 2


def test_page_values_have_intervals_and_rows_a_unit(page):
    table = page.one("table", class_="classroom")
    rows = {body.one("th").text: body for body in table.all("tbody")}
    speed = next(body for name, body in rows.items() if name.startswith("training speed ↑"))
    assert speed.one("th").text.endswith("in tokens/s")
    assert speed.all("span", class_="value")[0].text == "18,400"
    assert speed.all("span", class_="ends")[0].text == "17,500–19,200"
    reach = next(body for name, body in rows.items() if name.startswith("long-term"))
    assert (reach.all(class_="value")[0].text, reach.all(class_="ends")[0].text) == ("4", "4–8")


def test_page_verdicts_have_robustness_and_tokens(page):
    table = page.one("table", class_="classroom")
    quality = next(body for body in table.all("tbody") if body.one("th").text.startswith("translation quality"))
    assert [one.text for one in quality.all(class_="steady")] == [
        "same in 1 of 2 variations; different: another rate",
        "same in 2 of 2 variations",
    ]
    assert "trained on 1.16 to 2.32 M target tokens" in quality.one("th").text
    # the one that still learns is not as bold
    assert "open" in quality.all("td")[2].attributes["class"]


def test_page_claims_have_intervals_tests_and_stability(page):
    table = page.one("table", class_="claims")
    waits, faster = (page.one("tbody", id=f"claim-{name}") for name in ("waits", "trains-faster"))
    assert table.one("caption").text.endswith("Measured on two processor cores.")
    assert [cell.text for cell in waits.all("td", class_="number")] == ["48", "48 (32 a doubling)", "0", "0"]
    assert faster.all("td", class_="number best")[0].text == "18.4"
    assert [cell.text for cell in faster.all("td", class_="number")] == ["13.1", "<never>", "–"]
    details = faster.one("details").text
    assert "95 % intervals: rnn 18.4 (17.5–19.2)." in details
    assert "Test: t-test over rounds, p ≤ 0.001." in details
    assert "The verdict is the same in 2 of 3 variations: n = 16, 64; different: 1 thread." in details


def test_page_key_figures_come_first(page, found):
    shown = page.one("div", class_="full key").all("figure")
    assert [figure.attributes["id"] for figure in shown] == [
        "figure-parallelism-depth",
        "figure-long-range-recall",
        "figure-quality-scores",
    ]
    numbers = [figure.one("figcaption").text.split(".")[0] for figure in page.all("figure")]
    assert numbers[:3] == ["Figure 1", "Figure 2", "Figure 3"]
    assert len(set(numbers)) == len(numbers) == sum(len(result.figures) for result in found[1])


def test_page_names_omitted_rows_and_short_profiles(page, found):
    text = page.one("section", id="table").text
    beyond = [name for name in PLANS["lecture"].experiments if name not in (*PLANS["quick"].experiments, "quality")]
    lecture = [name for name, row in ROWS.items() if row.experiment in beyond]
    why = PLANS["quick"].why
    asked = f"--profile lecture has {', '.join(lecture)}; --profile definitive has scalability."
    assert f"Other rows are not in this profile, because {why}: {asked}" in text
    left = "memory, copying, associative recall, state tracking, decoding cost"
    assert f"Rows that were not requested: {left}." in text
    assert f"The profile quick is too short for quality, because {why}" in page.one("header").text


def test_page_escapes_names_and_reasons(page, text, models):
    assert "<2 GiB>" not in text
    assert '<"R&D">' not in re.sub(r'<script type="application/json">.*?</script>', "", text)
    assert models[-1] in page.one("h1").text
    assert not page.all("of")
    assert not page.all("r&d")


def test_page_has_commands_machine_and_recipes(page, found):
    summary = found[0]
    commands = [pre.text for pre in page.all("pre", class_="command")]
    assert commands[0] == summary.command
    assert "s2s report DIR" in commands
    for result in found[1]:
        section = page.one("section", id=f"experiment-{result.experiment}").text
        assert command_for(summary.command, result.experiment) in section
        assert all(part in section for part in result.method.split("\n\n"))
    facts = page.one("dl").text
    assert all(fact in facts for fact in summary.machine.values())
    recipes = [details.one("pre").parts[0].parts[0] for details in page.all("details", class_="recipe")]
    assert recipes == [contender.recipe for contender in summary.contenders]


def test_page_head_has_the_number_of_seeds_of_questions_that_have_more(found):
    summary, (_, result, *_), models = found[0], found[1], [each.model for each in found[0].contenders]

    def head(*seeds: list[int]) -> str:
        results = [result.model_copy(update={"seeds": own, "figures": []}) for own in seeds]
        return Tree(render(summary.model_copy(update={"seeds": [1, 2]}), models, results, {})).root.text

    assert " · seeds 1 and 2 · " in head([1, 2], [1])
    assert " · 2 to 4 seeds · " in head([1, 2, 3, 4], [])


def test_page_candidates_have_all_tried_rates(page, found):
    rows = page.one("table", id="contenders").one("tbody").all("tr")
    assert [row.parts[0].text for row in rows] == [contender.model for contender in found[0].contenders]
    assert [cell.text for cell in rows[0].all("td")] == ["412,345", "0.001", "31 s", "2.1", "2.2", "failed"]
    settings = page.one("table", id="settings").text
    assert "heads" in settings
    assert "width" in settings


def test_command_for_asks_one_question():
    command = "s2s compare rnn 'a b' --experiment x --seeds 3 --experiment=y"
    assert command_for(command, "memory") == "s2s compare rnn 'a b' --seeds 3 --experiment memory"


def test_page_has_no_external_resources(page, text):
    for node in page.all():
        for name, value in node.attributes.items():
            if name in ("href", "src", "xlink:href", "action", "srcset", "data", "poster"):
                assert value.startswith(("#", "data:image/png;base64,")), (node.name, name, value)
    assert not re.search(r"https?:|//[a-z]|@import|url\((?!#)", re.sub(r"base64,[^\"]*", "", text))
    policies = [node.attributes["content"] for node in page.all("meta") if "http-equiv" in node.attributes]
    assert policies[0].startswith("default-src 'none'; img-src data:")


def test_page_ids_are_unique_and_links_resolve(page):
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in page.all():
        for name in ("href", "xlink:href", "aria-labelledby"):
            value = node.attributes.get(name, "#table")
            if not value.startswith("data:"):
                assert value.removeprefix("#") in ids, value
        for key in re.findall(r"url\(#([^)]+)\)", " ".join(map(str, node.attributes.values()))):
            assert key in ids


def test_page_drawings_use_its_colours_and_fonts(page, text):
    inked = [node.attributes.get("style", "") for svg in page.all("svg") for node in svg.all()]
    assert any("var(--model-0)" in style for style in inked)
    # heat-maps, and what is written in them, stay as they are by day and by night
    fixed = {colour for style in inked for colour in re.findall("#[0-9a-f]{6}", style)}
    assert fixed == {"#fefefe", "#010101", "#b8b8b8"}
    assert not any("font-family" in style for style in inked)
    assert all(f"--model-{i}:" in text for i in range(7))


def test_page_headings_are_nested_and_cells_have_scopes(page):
    levels = [int(node.name[1]) for node in page.all() if re.fullmatch("h[1-6]", node.name)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    assert all(node.attributes.get("scope") in ("col", "row") for node in page.all("th"))


# what a reader does: rests the pointer on the third value of every drawing; the tip then says its text
_POINTING = """<script>
const said = [], wide = () => document.documentElement.scrollWidth - innerWidth;
const folded = wide();
document.querySelectorAll("details").forEach((one) => { one.open = true; });
document.querySelectorAll(".switch input").forEach((one) => { one.checked = true; });
document.querySelectorAll(".plot").forEach((plot) => {
  const svg = plot.querySelector("svg"), box = svg.getBoundingClientRect();
  if (!box.width) return;
  const { spots, panels } = JSON.parse(plot.querySelector("script").textContent);
  const at = spots.length ? spots[2] : [panels[1][0] + panels[1][2] - 1, panels[1][1] + 1];
  const unit = box.width / svg.viewBox.baseVal.width;
  const place = { clientX: box.left + at[0] * unit, clientY: box.top + at[1] * unit };
  svg.dispatchEvent(new PointerEvent("pointermove", place));
  const tip = document.querySelector("#tip");
  said.push([tip.hidden ? "nothing" : tip.textContent, spots.length ? at[2] : ""]);
});
document.documentElement.dataset.beyond = Math.max(folded, wide());
document.body.appendChild(document.createElement("pre")).textContent = JSON.stringify(said);
document.body.lastChild.id = "said";
</script></body>"""


def _browse(path: Path, folder: Path) -> tuple[str, str]:
    """The page's elements after its scripts ran; errors of scripts and requests for anything else."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    log = folder / "net.json"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
    options += [
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-extensions",
    ]
    options += [f"--user-data-dir={folder / 'profile'}", "--proxy-server=127.0.0.1:9", f"--log-net-log={log}"]
    options += ["--enable-logging=stderr", "--window-size=1280,900", "--dump-dom"]
    done = subprocess.run(
        [browser, *options, path.as_uri()], capture_output=True, timeout=120, check=False, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    # An event a line; the log is cut where the browser ends, so it is not read as JSON. What the browser itself asks
    # for, such as the time, is not asked for by the page.
    by_page = re.compile(r'"network_isolation_key":"file://[^"]*".*?"url":"([^"]*)"')
    asked = set(by_page.findall(log.read_text(encoding="utf-8", errors="replace")))
    outside = {url for url in asked if not url.startswith(("file:", "data:"))}
    return done.stdout, "\n".join([line for line in done.stderr.splitlines() if "CONSOLE" in line] + sorted(outside))


def test_page_in_a_browser_is_complete_and_shows_values(text, found, models, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(text.replace("</body>", _POINTING), encoding="utf-8")
    shown, complaints = _browse(path, tmp_path)
    assert complaints == ""
    page = Tree(shown).root
    plots = page.all("svg", role="img")
    assert page.one("html").attributes["data-connected"] == str(len(plots))
    # nothing stands beyond the right edge, folded or not
    assert int(page.one("html").attributes["data-beyond"]) <= 0
    _check_complete(page, *found, models)
    said = json.loads(page.one("pre", id="said").text)
    figures = [figure for result in found[1] for figure in result.figures]
    assert len(said) == len(figures)
    # as they stand on the page, the key figures first
    ids = [node.attributes["id"] for node in page.all("figure")]
    figures.sort(key=lambda figure: next(i for i, key in enumerate(ids) if key.endswith(f"-{figure.name}")))
    for (tip, spot), figure in zip(said, figures, strict=True):
        if figure.heatmaps:
            one = figure.heatmaps[1]
            assert tip.startswith(f"{one.rows[0]} · {one.columns[-1]}: ")
        else:
            assert spot in tip.split("\n")
    # drawn with linear axes, short curves meet; all that is there is told
    assert any(tip.startswith("rnn, loop · 64 tokens: 20.5 (18.8–22.5) ms") for tip, _ in said)


def test_page_browser_check_sees_requests_and_errors(tmp_path):
    path = tmp_path / "bad.html"
    path.write_text('<img src="http://example.invalid/a.png"><script>nothing.there()</script>')
    complaints = _browse(path, tmp_path)[1]
    assert "example.invalid" in complaints
    assert "nothing is not defined" in complaints


def _candidates(summary: Summary, traits: dict[str, str]) -> list[CandidateSummary]:
    first = summary.contenders[0]
    return [first.model_copy(update={"model": model, "traits": own}) for model, own in traits.items()]


def _without_claims(found, traits: dict[str, str], experiment: str, finished: bool = True) -> Node:
    """The page of a comparison with one question that decides no claim."""
    update = {"models": [*traits], "contenders": _candidates(found[0], traits), "experiments": [experiment]}
    command = f"s2s compare {' '.join(traits)} --experiment {experiment}"
    result = found[1][1].model_copy(update={"experiment": experiment, "findings": [], "figures": [], "claims": []})
    summary = found[0].model_copy(update=update | {"command": command})
    return Tree(render(summary, [*traits], [result] if finished else [], {})).root


def test_page_advises_no_command_that_cannot_decide_a_claim(found):
    page = _without_claims(found, {"glin": "convolution + scan decoder", "transformer": "self-attention"}, "memory")
    reasons = {each.one("b").text: each.one("span").text for each in page.one("section", id="claims").all("li")}
    assert reasons["7"] == "needs a recurrent encoder"
    assert reasons["1"] == "needs a recurrent network"
    assert reasons["5"] == "needs a recurrent encoder without attention"
    assert reasons["18"] == "needs a recurrent or scan encoder"
    assert reasons["15"] == "not requested: s2s compare glin transformer --experiment decoding"
    page = _without_claims(found, {"glin": "convolution", "conv": "convolution + attention"}, "memory")
    reasons = {each.one("b").text: each.one("span").text for each in page.one("section", id="claims").all("li")}
    assert reasons["15"] == "needs a recurrent decoder and a Transformer"


def test_page_without_a_decided_claim_says_why(found):
    models = {"glin": "convolution", "transformer": "self-attention"}
    lines = [
        _without_claims(found, models, "gradients").one("section", id="claims").all("p")[0].text,
        _without_claims(found, models, "parallelism", finished=False).one("section", id="claims").all("p")[0].text,
        _without_claims(found, models, "quality", finished=False).one("section", id="claims").all("p")[0].text,
    ]
    assert lines == [
        "No claim is decided: 7 needs a recurrent encoder.",
        "No claim is decided: 1 needs a recurrent network; 2 needs a recurrent network.",
        "No claim is decided: 14 not finished.",
    ]


def test_page_says_that_a_claim_has_no_verdict_because_measurements_failed(found, tmp_path):
    models = {"lstm": "recurrent", "transformer": "self-attention"}
    update = {"models": [*models], "contenders": _candidates(found[0], models), "experiments": ["parallelism"]}
    summary = found[0].model_copy(update=update)
    failure = Failure(task="round-1", model="lstm", reason="memory ran out")
    update = {"experiment": "parallelism", "claims": [], "failures": [failure]}
    result = found[1][1].model_copy(update=update)
    reasons = {claim.number: why for claim, why in undecided(summary, [result])}
    assert reasons[1] == reasons[2] == "has no verdict: memory ran out"
    # no older verdict stays in the file
    (tmp_path / "claims.csv").write_text("number,verdict\n1,yes\n")
    write_claims(tmp_path, summary, [*models], [result])
    assert not (tmp_path / "claims.csv").exists()


def test_page_of_classifiers_has_no_claims(found):
    models = {"lstm": "", "transformer": ""}
    update = {"task": "classification", "models": [*models], "contenders": _candidates(found[0], models)}
    summary = found[0].model_copy(update=update | {"experiments": ["classification"]})
    assert not Tree(render(summary, [*models], [], {})).root.all("section", id="claims")
