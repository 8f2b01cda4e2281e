"use strict";
// Draws the charts, and lets readers sort and filter; the page says everything without it but the charts.
(() => {
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  let hidden = [];

  async function draw() {
    const scheme = dark.matches ? "dark" : "light";
    delete document.documentElement.dataset.drawn;
    for (const script of document.querySelectorAll("script.spec")) {
      const place = document.getElementById(script.dataset.for);
      const options = { renderer: "svg", actions: false, ast: true, config: themes[scheme], tooltip: { theme: scheme } };
      views.get(place)?.finalize();
      const result = await vegaEmbed(place, JSON.parse(script.textContent), options);
      views.set(place, result);
      label(place);
      hide(result.view);
    }
    document.documentElement.dataset.drawn = scheme;
  }

  // Vega names its lists of choices by text alone; a label element around both says it to screen readers.
  function label(place) {
    for (const select of place.querySelectorAll("select")) {
      select.setAttribute("aria-label", select.closest(".vega-bind")?.textContent.trim() || "choice");
    }
  }

  function hide(view) {
    try { view.signal("hidden", hidden).runAsync(); } catch (_) { /* a chart without runs */ }
  }

  function runs() {
    const boxes = [...document.querySelectorAll("#runs-shown input")];
    hidden = boxes.filter((box) => !box.checked).map((box) => box.value);
    for (const { view } of views.values()) hide(view);
    for (const answers of document.querySelectorAll(".answers > [data-run]")) {
      answers.hidden = hidden.includes(answers.dataset.run);
    }
  }

  function sort(button) {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") !== "descending";
    for (const other of head.parentNode.children) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[head.cellIndex].dataset.value;
    const number = (text) => (text === "-inf" ? -Infinity : Number(text));
    const compare = (a, b) => {
      const [x, y] = [number(value(a)), number(value(b))];
      return Number.isNaN(x) || Number.isNaN(y) ? value(b).localeCompare(value(a)) : y - x || 0;
    };
    body.append(...[...body.rows].sort((a, b) => (down ? 1 : -1) * compare(a, b)));
  }

  function filter(input) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = input.dataset.filter === "tr" ? "tbody tr" : "article";
    for (const row of input.closest("details, .examples").querySelectorAll(rows)) {
      const text = (row.dataset.text ?? row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (button) sort(button);
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset.filter) filter(event.target);
    if (event.target.closest("#runs-shown")) runs();
  });
  dark.addEventListener("change", draw);
  draw();
})();
