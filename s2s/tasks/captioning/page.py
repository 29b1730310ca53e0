"""A page of one file that shows where a model looked for each word of its captions; it needs no network."""

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment

from s2s.tasks.captioning.pictures import Shown, enlarged, lit

if TYPE_CHECKING:
    from s2s.tasks.captioning.writing import Look

_SIDE = 256

# what a word says is never markup: everything is escaped
_PAGE = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string("""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.2rem; } h2 { font-size: 1rem; overflow-wrap: anywhere; }
section { border-top: 1px solid #8888; margin-top: 2rem; }
img { display: block; width: 100%; }
.large { width: min(100%, {{ side }}px); }
.caption { font-size: 1.2rem; }
.caption button { font: inherit; color: inherit; background: none; border: 0; border-bottom: 2px solid #8888;
  padding: 0 .15em; cursor: pointer; }
.caption button:is(:hover, :focus), .caption button[aria-pressed=true] { border-bottom-color: #d55e00; }
.words { display: grid; grid-template-columns: repeat(auto-fill, minmax(7rem, 1fr)); gap: .5rem; margin-top: 1rem; }
figure { margin: 0; } figcaption { text-align: center; font-size: .9rem; overflow-wrap: anywhere; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>Lit is what the last layer's attention was on while the word was written, on average over its heads; the brightest
square has the share that stands below the word. Point at a word to see it large.</p>
{% for image in images %}
<section>
<h2>{{ image.name }}</h2>
<img class="large" src="{{ image.whole }}" data-whole="{{ image.whole }}" alt="{{ image.caption }}">
<p class="caption">
{% for word in image.words %}
<button type="button" data-shown="{{ word.lit }}">{{ word.text }}</button>
{% endfor %}
</p>
<div class="words">
{% for word in image.words %}
<figure><img src="{{ word.lit }}" alt="where the model looked for {{ word.text }}">
<figcaption>{{ word.text }}<br><small>{{ word.most }}</small></figcaption></figure>
{% endfor %}
</div>
</section>
{% endfor %}
<script>
for (const section of document.querySelectorAll("section")) {
  const large = section.querySelector(".large");
  for (const word of section.querySelectorAll("button")) {
    const show = () => { large.src = word.dataset.shown; };
    const hide = () => { large.src = large.dataset.whole; };
    word.addEventListener("mouseenter", show);
    word.addEventListener("focus", show);
    word.addEventListener("mouseleave", hide);
    word.addEventListener("blur", hide);
  }
}
</script>
</body>
</html>
""")


def page(looks: Sequence["Look"], captions: Sequence[str], title: str) -> str:
    """Each image with its caption, whose words light what the model looked at, and a panel for each word."""
    images = []
    for look, caption in zip(looks, captions, strict=True):
        image = enlarged(np.array(look.pixels, dtype=np.uint8), _SIDE)
        words = [
            {"text": word, "lit": _inline(lit(image, np.array(shares))), "most": f"{np.max(shares):.0%}"}
            for word, shares in zip(look.words, look.maps, strict=True)
        ]
        images.append({"name": look.name, "caption": caption, "whole": _inline(image), "words": words})
    return _PAGE.render(title=title, images=images, side=2 * _SIDE)


def _inline(image: Shown) -> str:
    """An image as a part of a page."""
    from PIL.Image import fromarray

    file = io.BytesIO()
    fromarray(image).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
