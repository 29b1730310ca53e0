"use strict";
// Draws what the page's data hold. Texts of users go into the page as text nodes alone.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const NAMES = { encoder: "encoder self-attention", decoder: "decoder self-attention", cross: "cross-attention" };
  const HEADS = ["#0072b2", "#d55e00", "#009e73", "#b5518a", "#a17200", "#332288", "#56b4e9", "#882255"];
  const FAINT = 0.04, LONG = 40, MANY = 16;
  const style = getComputedStyle(document.documentElement);
  const rgb = (name) => {
    const hex = style.getPropertyValue(name).trim().slice(1);
    return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  const FOR = rgb("--for"), AGAINST = rgb("--against"), PAGE = rgb("--page");
  const DARK = style.getPropertyValue("--dark").trim().split(" ").map(Number);

  // elements: el("td", {class: "number"}, "text", child)
  function el(name, attributes, ...children) {
    const svg = ["svg", "text", "line", "rect", "g", "title"].includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }
  const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
  const number = (value, digits = 3) => value.toFixed(digits).replace("-", "−");
  const letter = (at) => data.examples.length > 1 ? `${"ABC"[at]}: ` : "";
  const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 0) || 1;
  const mixed = (strength, colour) => PAGE.map((page, i) => Math.round(page + strength * (colour[i] - page)));
  const signed = (value, most) => mixed(Math.min(1, Math.abs(value) / most), value < 0 ? AGAINST : FOR);
  const shade = (value, most) => mixed(Math.min(1, Math.max(0, value) / most), DARK);

  const tip = document.body.appendChild(el("div", { id: "tip" }));
  tip.hidden = true;
  function show(event, text) {
    tip.textContent = text;
    tip.hidden = !text;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  }
  function told(target, words) {
    target.addEventListener("pointermove", (event) => show(event, words(event)));
    target.addEventListener("pointerleave", () => { tip.hidden = true; });
  }

  // a map of numbers, a pixel each, scaled up by the page's style
  function canvas(rows, colour, words, attributes) {
    const made = el("canvas", { width: rows[0].length, height: rows.length, ...attributes });
    const paint = made.getContext("2d"), image = paint.createImageData(rows[0].length, rows.length);
    rows.forEach((row, y) => row.forEach((value, x) => {
      image.data.set([...colour(value), 255], 4 * (y * row.length + x));
    }));
    paint.putImageData(image, 0, 0);
    if (words) told(made, (event) => {
      const box = made.getBoundingClientRect();
      const at = (place, size, count) => Math.min(count - 1, Math.max(0, Math.floor(place / size * count)));
      const x = at(event.clientX - box.left, box.width, rows[0].length);
      const y = at(event.clientY - box.top, box.height, rows.length);
      return words(y, x, rows[y][x]);
    });
    return made;
  }
  function strip(values, most, name) {
    return canvas([values], (v) => signed(v, most), (_, x, v) => `${name}[${x}] = ${number(v)}`, { class: "strip" });
  }

  function tabs(names, choose, first = 0) {
    const buttons = names.map((name, at) => el("button", { type: "button", "aria-pressed": at === first }, name));
    buttons.forEach((button, at) => button.addEventListener("click", () => {
      buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
      choose(at);
    }));
    return el("div", { class: "tabs" }, ...buttons);
  }

  // layers downward, heads to the right: a small picture each
  function grid(layers, heads, small, choose) {
    const box = el("div", { class: "grid" });
    box.style.gridTemplateColumns = `max-content repeat(${heads}, minmax(34px, 110px))`;
    box.append(el("span"), ...Array.from({ length: heads }, (_, head) => el("span", { class: "name" }, `head ${head}`)));
    for (let layer = 0; layer < layers; layer++) {
      box.append(el("span", { class: "name" }, `layer ${layer}`));
      for (let head = 0; head < heads; head++) {
        const one = small(layer, head);
        one.dataset.at = `${layer} ${head}`;
        if (choose) one.addEventListener("click", () => choose(layer, head));
        box.append(one);
      }
    }
    return box;
  }

  // two columns of pieces, a line for each share: the head view
  function lines(maps, layer, heads, coloured) {
    const ROW = 19, LEFT = 150, RIGHT = 370, count = Math.max(maps.rows.length, maps.columns.length);
    const svg = el("svg", { width: 540, height: ROW * count + 8, role: "img" });
    const drawn = el("g");
    svg.append(drawn);
    const y = (at) => ROW * at + 15;
    const mean = (i, j) => heads.reduce((sum, head) => sum + maps.weights[layer][head][i][j], 0) / heads.length;
    const left = maps.rows.map((piece, i) => el("text", { x: LEFT - 8, y: y(i), "text-anchor": "end" }, short(piece)));
    const right = maps.columns.map((piece, j) => el("text", { x: RIGHT + 8, y: y(j) }, short(piece)));
    const shares = maps.columns.map((_, j) => el("text", { x: RIGHT + 110, y: y(j), class: "share" }));
    const shares_left = maps.rows.map((_, i) => el("text", { x: 2, y: y(i), class: "share" }));
    svg.append(...left, ...right, ...shares, ...shares_left);
    function draw(row, column) {
      drawn.replaceChildren();
      maps.rows.forEach((_, i) => maps.columns.forEach((_, j) => {
        if ((row !== null && row !== i) || (column !== null && column !== j)) return;
        heads.forEach((head) => {
          const weight = maps.weights[layer][head][i][j];
          if (weight < FAINT / (row !== null || column !== null ? 4 : 1)) return;
          drawn.append(el("line", { x1: LEFT, x2: RIGHT, y1: y(i) - 4, y2: y(j) - 4, "stroke-width": 2,
            stroke: coloured ? HEADS[head % HEADS.length] : HEADS[0], "stroke-opacity": Math.min(1, weight / Math.sqrt(heads.length)) }));
        });
      }));
      left.forEach((one, i) => one.classList.toggle("faded", row !== null && row !== i));
      right.forEach((one, j) => one.classList.toggle("faded", column !== null && column !== j));
      shares.forEach((one, j) => { one.textContent = row === null ? "" : percent(mean(row, j)); });
      shares_left.forEach((one, i) => { one.textContent = column === null ? "" : percent(mean(i, column)); });
    }
    left.forEach((one, i) => one.addEventListener("pointerenter", () => draw(i, null)));
    right.forEach((one, j) => one.addEventListener("pointerenter", () => draw(null, j)));
    svg.addEventListener("pointerleave", () => draw(null, null));
    draw(null, null);
    return svg;
  }
  const short = (piece) => piece.length > 18 ? `${piece.slice(0, 17)}…` : piece;

  function attention(box, example, at) {
    const kinds = example.attention;
    if (!kinds.length) return;
    const place = el("div");
    if (letter(at)) box.append(el("h3", null, `Sentence ${letter(at).slice(0, 1)}`));
    const shown = (maps) => !example.image || maps.kind === "decoder" ? views(maps) : maps.kind === "encoder" ? looks(example, maps) : lit(example, maps);
    const first = Math.max(0, kinds.findIndex((maps) => maps.kind === "cross"));
    if (kinds.length > 1) box.append(tabs(kinds.map((maps) => NAMES[maps.kind]), (kind) => place.replaceChildren(shown(kinds[kind])), first));
    else if (!example.image) box.append(el("p", { class: "method" }, NAMES[kinds[0].kind]));
    if (example.cut) box.append(el("p", { class: "soft" }, `Only the first ${example.cut} tokens of longer texts are shown, so rows may sum to less than one; the JSON has all.`));
    place.append(shown(kinds[first]));
    box.append(place);
  }

  function views(maps) {
    const layers = maps.weights.length, heads = maps.weights[0].length, all = maps.weights[0].map((_, head) => head);
    const head_view = el("div"), caption = el("p", { class: "method" });
    const model_view = grid(layers, heads, (layer, head) => canvas(
      maps.weights[layer][head], (v) => shade(v, 1),
      (i, j, v) => `layer ${layer}, head ${head}\n${maps.rows[i]} → ${maps.columns[j]}: ${percent(v)}`,
    ), (layer, head) => chosen(layer, [head]));
    function chosen(layer, some) {
      const one = some.length === 1 && heads > 1;
      caption.textContent = `Layer ${layer}, ${one ? `head ${some[0]}` : heads > 1 ? "all heads, a colour each" : "the only head"}: ${maps.kind === "cross" ? "target to source" : "from each token (left) to the tokens that it attends to (right)"}`;
      head_view.replaceChildren(lines(maps, layer, some, !one));
      model_view.querySelectorAll("canvas").forEach((small) => {
        const [l, h] = small.dataset.at.split(" ").map(Number);
        small.classList.toggle("chosen", l === layer && some.includes(h));
      });
    }
    const whole = tabs(maps.weights.map((_, layer) => `layer ${layer}`), (layer) => chosen(layer, all), layers - 1);
    chosen(layers - 1, all);
    return el("div", { class: "views" }, el("div", null, whole, caption, el("div", { class: "lines" }, head_view)), model_view);
  }

  const chunks = (values, size) => Array.from({ length: Math.ceil(values.length / size) }, (_, i) => values.slice(i * size, (i + 1) * size));

  function picture(example, width) {
    const image = example.image, size = image[0].length;
    const made = el("canvas", { width: size, height: size, class: "patches" });
    const paint = made.getContext("2d"), filled = paint.createImageData(size, size);
    for (let y = 0; y < size; y++) for (let x = 0; x < size; x++) {
      const colour = image.length === 1 ? Array(3).fill(image[0][y][x]) : image.map((channel) => channel[y][x]);
      filled.data.set([...colour, 255], 4 * (y * size + x));
    }
    paint.putImageData(filled, 0, 0);
    made.style.width = made.style.height = `${width}px`;
    return made;
  }

  // what each head looks at in an image, from one place
  function heads_on(example, maps, place) {
    const across = example.patches, first = maps.columns.length - across * across;
    return grid(maps.weights.length, maps.weights[0].length, (layer, head) => {
      const row = maps.weights[layer][head][place].slice(first), most = largest(row);
      return canvas(chunks(row, across), (v) => shade(v, most),
        (y, x, v) => `layer ${layer}, head ${head}\npatch ${y + 1},${x + 1}: ${percent(v)}`);
    });
  }

  // for each piece that is written, where each head looks in the image
  function lit(example, maps) {
    const right = el("div"), caption = el("p", { class: "method" });
    function from(place) {
      caption.textContent = `for ${maps.rows[place]}; each head has its own scale, up to its largest weight`;
      right.replaceChildren(heads_on(example, maps, place));
    }
    from(0);
    return el("div", { class: "views" }, el("div", null, el("p", { class: "method" }, "Select a token"), tabs(maps.rows, from), picture(example, 330)), el("div", null, caption, right));
  }

  // from the patch under the pointer, where each head looks in the image
  function looks(example, maps) {
    const across = example.patches, first = maps.rows.length - across * across;
    const right = el("div"), caption = el("p", { class: "method" }), seen = picture(example, 330);
    function from(place) {
      caption.textContent = `from patch ${maps.rows[place]} (row, column); each head has its own scale, up to its largest weight`;
      right.replaceChildren(heads_on(example, maps, place));
    }
    seen.addEventListener("pointermove", (event) => {
      const unit = seen.getBoundingClientRect().width / across, clip = (n) => Math.min(across - 1, Math.max(0, Math.floor(n)));
      from(first + clip(event.offsetY / unit) * across + clip(event.offsetX / unit));
    });
    const start = first ? el("button", { type: "button" }, "from the first vector") : null;
    if (start) start.addEventListener("click", () => from(0));
    from(example.walk ? example.walk.place : first);
    return el("div", { class: "views" }, el("div", null, el("p", { class: "method" }, "Hover over a patch"), seen, start), el("div", null, caption, right));
  }

  function walk(box, example, at) {
    const found = example.walk;
    if (!found) return;
    const flat = (rows) => largest(rows.flat());
    const asked = Math.max(largest(found.query), flat(found.keys)), given = flat(found.values);
    const mixed = flat(found.values.map((value, i) => value.map((v) => v * found.weights[i])));
    const order = found.weights.map((_, i) => i).sort((a, b) => found.weights[b] - found.weights[a]);
    const shown = order.slice(0, example.image ? MANY : LONG).sort((a, b) => a - b), size = found.query.length;
    // what relative positions or ALiBi add to the scores
    const root = Math.sqrt(size), divided = found.dots.map((dot) => dot / root);
    const bias = found.scaled.map((score, i) => score - divided[i]), biased = bias.some((each) => Math.abs(each) > 1e-4);
    const heads = ["token", "key k", "q·k", `÷ √${size}`, ...(biased ? ["+ position bias"] : []), "softmax", "value v", "weight × v"];
    const cells = (i) => [
      el("td", null, found.pieces[i]), el("td", null, strip(found.keys[i], asked, "k")),
      el("td", { class: "number" }, number(found.dots[i])), el("td", { class: "number" }, number(divided[i])),
      ...(biased ? [el("td", { class: "number" }, number(bias[i]))] : []),
      el("td", null, bar(found.weights[i]), number(found.weights[i])), el("td", null, strip(found.values[i], given, "v")),
      el("td", null, strip(found.values[i].map((v) => v * found.weights[i]), mixed, "weight × v")),
    ];
    const rows = shown.map((i) => el("tr", null, ...cells(i)));
    const query = el("tr", { class: "asks" }, el("td", null, found.pieces[found.place]), el("td", null, strip(found.query, asked, "q")), el("td", { colspan: heads.length - 2, class: "soft" }, "query q"));
    const sum = el("tr", { class: "sum" }, el("td", { colspan: heads.length - 1 }, "output: the sum of the last column"), el("td", null, strip(found.read, largest(found.read), "read")));
    const left = found.pieces.length - shown.length, top = order[0];
    const powers = found.scaled.map(Math.exp), all = powers.reduce((sum, power) => sum + power, 0);
    const said = `“${found.pieces[top]}” has the largest weight: q·k = ${number(found.dots[top])} (a sum of ${size} products); `
      + `divided by √${size} = ${number(root, 2)}: ${number(divided[top])}; `
      + (biased ? `plus the position bias ${number(bias[top])}: ${number(found.scaled[top])}; ` : "")
      + `exponential: ${number(powers[top])}; divided by the sum over all tokens, ${number(all)}: ${number(found.weights[top])}.`;
    box.append(
      el("h3", null, `${letter(at)}“${found.word}”, layer ${found.layer}, head ${found.head}`),
      el("div", { class: "wide" }, el("table", null, el("thead", null, el("tr", null, ...heads.map((name) => el("th", null, name)))), el("tbody", null, query, ...rows, sum))),
      el("p", null, said),
      el("p", { class: "soft" }, (left ? `${left} tokens with smaller weights are not shown. ` : "") + `Largest difference from the output of the model's own attention kernel: ${found.difference.toExponential(1)}.`),
    );
  }
  function bar(share) {
    const made = el("span", { class: "bar" });
    made.style.width = `${(70 * share).toFixed(1)}px`;
    return made;
  }

  function same(found) {
    const body = document.querySelector("#same tbody"), layers = found.looked[0].length;
    const words = (side, i) => i < 0 || i >= layers ? "" : found.looked[side][i].map(([word, share]) => `${word} ${percent(share)}`).join(" · ");
    found.layers.forEach((name, i) => body.append(el("tr", null,
      el("td", null, name), el("td", null, bar(Math.max(0, found.cosines[i])), number(found.cosines[i])),
      el("td", null, words(0, i - 1)), el("td", null, words(1, i - 1)))));
  }

  function saliency(box, example, at) {
    const all = example.saliency;
    if (!all.length) return;
    const one = all[0].answers.length === 1;
    if (letter(at)) box.append(el("h3", null, `Sentence ${letter(at).slice(0, 1)}`));
    const gap = (found) => found.difference === null ? "" : ` (sum ${found.total.toPrecision(3)}, error of the sum ${found.difference.toPrecision(2)})`;
    const place = el("div", { class: "row" });
    if (example.image) {
      const across = example.patches, shown = (answer) => all.map((found) => {
        const weights = found.weights[answer].slice(-across * across), most = largest(weights);
        const made = canvas(chunks(weights, across), (v) => signed(v, most), (y, x, v) => `patch ${y + 1},${x + 1}: ${number(v, 4)}`, { class: "patches" });
        made.style.width = made.style.height = "220px";
        return el("figure", null, made, el("figcaption", null, found.method + gap(found)));
      });
      const choose = (answer) => place.replaceChildren(
        el("figure", null, picture(example, 220), el("figcaption", null, `${one ? "predicted:" : "for"} ${all[0].answers[answer]}`)), ...shown(answer));
      if (!one) box.append(tabs(all[0].answers, choose));
      choose(0);
    } else if (one) {
      all.forEach((found) => box.append(
        el("p", { class: "method" }, `${found.method}, for ${found.answers[0]}${gap(found)}`),
        coloured(found.words, found.weights[0]),
      ));
    } else {
      all.forEach((found) => place.append(el("figure", null, heatmap(found), el("figcaption", null, found.method + gap(found)))));
    }
    box.append(place);
  }
  function coloured(words, weights) {
    const most = largest(weights), line = el("p", { class: "words" });
    words.forEach((word, i) => {
      const span = el("span", null, word);
      span.style.background = `rgb(${signed(0.6 * weights[i], most)})`;
      told(span, () => `${word}: ${number(weights[i], 4)}`);
      line.append(span, " ");
    });
    return line;
  }
  function heatmap(found) {
    const CELL = 19, LEFT = 92, TOP = 84, most = largest(found.weights.flat());
    const svg = el("svg", { class: "map", width: LEFT + CELL * found.words.length + 30, height: TOP + CELL * found.answers.length + 4 });
    found.words.forEach((word, x) => svg.append(el("text", { transform: `translate(${LEFT + CELL * x + 13} ${TOP - 5}) rotate(-55)` }, short(word))));
    found.answers.forEach((answer, y) => {
      svg.append(el("text", { x: LEFT - 6, y: TOP + CELL * y + 13, "text-anchor": "end" }, short(answer)));
      found.weights[y].forEach((weight, x) => {
        const cell = el("rect", { x: LEFT + CELL * x, y: TOP + CELL * y, width: CELL - 1, height: CELL - 1, fill: `rgb(${signed(weight, most)})` });
        told(cell, () => `${answer} ← ${found.words[x]}: ${number(weight, 4)}`);
        svg.append(cell);
      });
    });
    return svg;
  }

  function places(box) {
    data.positions.forEach((found) => {
      const sides = [["vectors", "number"], ["products", "position"]].map(([name, column]) => {
        const rows = found[name], most = largest(rows.flat());
        const made = canvas(rows, (v) => signed(v, most), (y, x, v) => `position ${y}, ${column} ${x}: ${number(v)}`, { class: "patches" });
        made.style.width = name === "vectors" ? "560px" : "384px";
        made.style.height = "384px";
        return el("figure", null, made, el("figcaption", null, name === "vectors" ? `${rows.length} positions (downward), ${rows[0].length} numbers of each` : "dot products of positions"));
      });
      box.append(el("h3", null, `${found.name}, ${found.kind}`), el("div", { class: "row" }, ...sides));
    });
  }

  for (const [name, draw] of Object.entries({ attention, walk, saliency })) {
    document.querySelectorAll(`div.${name}`).forEach((box) => draw(box, data.examples[box.dataset.example], Number(box.dataset.example)));
  }
  if (data.word) same(data.word);
  if (data.positions.length) places(document.getElementById("places"));
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  document.documentElement.dataset.drawn = data.examples.length;
})();
