"use strict";
// values under the pointer; without it the page loses nothing, as all numbers are in tables
(() => {
  const NEAR = 22, TOGETHER = 3, MOST = 8;
  const tip = document.body.appendChild(document.createElement("div"));
  tip.id = "tip";
  tip.hidden = true;

  function show(event, text) {
    tip.textContent = text;
    tip.hidden = false;
    const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const above = event.clientY - tip.offsetHeight - 12;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above > 8 ? above : event.clientY + 18}px`;
  }

  // the cell of a heat-map: what it holds stands in the table of numbers
  function cell(figure, panels, x, y) {
    const at = panels.findIndex(([l, t, w, h]) => x >= l && x < l + w && y >= t && y < t + h);
    if (at < 0) return "";
    const table = figure.querySelectorAll(".numbers table")[at];
    const head = table.tHead.rows[0].cells, body = table.tBodies[0].rows, [l, t, w, h] = panels[at];
    const row = body[Math.floor((y - t) / h * body.length)];
    const column = 1 + Math.floor((x - l) / w * (head.length - 1));
    return `${row.cells[0].textContent} · ${head[column].textContent}: ${row.cells[column].textContent}`;
  }

  function connect(plot) {
    const svg = plot.querySelector("svg"), figure = plot.closest("figure");
    const { spots, panels } = JSON.parse(plot.querySelector("script").textContent);
    const ring = svg.appendChild(document.createElementNS(svg.namespaceURI, "circle"));
    ring.setAttribute("class", "ring");
    ring.setAttribute("r", 6);
    ring.style.display = "none";
    const hide = () => { tip.hidden = true; ring.style.display = "none"; };
    const move = (event) => {
      const box = svg.getBoundingClientRect(), unit = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * unit, y = (event.clientY - box.top) * unit;
      const found = cell(figure, panels, x, y);
      if (found) return show(event, found);
      const far = ([sx, sy]) => Math.hypot(sx - x, sy - y);
      const near = spots.reduce((best, spot) => !best || far(spot) < far(best) ? spot : best, null);
      if (!near || far(near) > NEAR) return hide();
      const same = spots.filter(([sx, sy]) => Math.hypot(sx - near[0], sy - near[1]) < TOGETHER);
      show(event, same.slice(0, MOST).map((spot) => spot[2]).join("\n"));
      ring.setAttribute("cx", near[0]);
      ring.setAttribute("cy", near[1]);
      ring.style.display = "";
    };
    svg.addEventListener("pointermove", move);
    svg.addEventListener("pointerdown", move);
    svg.addEventListener("pointerleave", hide);
  }

  const plots = document.querySelectorAll(".plot");
  plots.forEach(connect);
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  // what a link leads to is unfolded, with all around it and what it heads
  function unfold() {
    const goal = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!goal) return;
    const inside = goal.matches(".experiment") ? goal.querySelectorAll(".appendix") : [];
    [goal, ...inside].forEach((one) => { if (one.localName === "details") one.open = true; });
    for (let one = goal; one; one = one.parentElement) if (one.localName === "details") one.open = true;
    goal.scrollIntoView();
  }
  addEventListener("hashchange", unfold);
  unfold();
  // paper cannot be clicked on
  const folded = ".recipe, .appendix, .words";
  addEventListener("beforeprint", () => document.querySelectorAll(folded).forEach((one) => { one.open = true; }));
  document.documentElement.dataset.connected = plots.length;
})();
