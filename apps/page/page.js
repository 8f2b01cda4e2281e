"use strict";
// Draws the charts of what is open, and lets readers sort and filter; the page says everything without it but the charts.
(() => {
  const themes = JSON.parse(document.getElementById("themes").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const views = new Map();
  let hidden = [], drawing = Promise.resolve();

  function draw() {
    delete document.documentElement.dataset.drawn;
    drawing = drawing.then(drawOpen);
  }

  async function drawOpen() {  // what is closed has no width to draw on
    const scheme = dark.matches ? "dark" : "light";
    for (const script of document.querySelectorAll("script.spec")) {
      const place = document.getElementById(script.dataset.for);
      if (script.closest("details:not([open])") || views.get(place)?.scheme === scheme) continue;
      const options = { renderer: "svg", actions: false, ast: true, config: themes[scheme], tooltip: { theme: scheme } };
      views.get(place)?.finalize();
      const { view, finalize } = await vegaEmbed(place, JSON.parse(script.textContent), options);
      views.set(place, { scheme, view, finalize });
      label(place);
      hide(view);
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
    for (const { view } of views.values()) if (view) hide(view);
    for (const answers of document.querySelectorAll("[data-run]")) answers.hidden = hidden.includes(answers.dataset.run);
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
    for (const row of input.closest("details, .examples").querySelectorAll(input.dataset.filter)) {
      const text = (row.dataset.text ?? row.textContent).toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
  }

  function fits(box, more = 0) {  // pairs whose P by the chosen measure is as high, some at a time
    const most = Number(box.dataset.most), by = box.querySelector("[data-by]").value;
    const least = Number(box.querySelector("[data-least]").value);
    const shown = (box.shown = more ? box.shown + more : most);
    const fit = [...box.querySelectorAll("li[data-p]")].filter((card) => {
      card.hidden = true;
      return (JSON.parse(card.dataset.p)[by] ?? -1) >= least;
    });
    for (const card of fit.slice(0, shown)) card.hidden = false;
    box.querySelector(".cg-more").hidden = fit.length <= shown;
    box.querySelector("[role=status]").textContent = `${Math.min(shown, fit.length)} of ${fit.length} shown`;
  }

  function open() {  // the section that the address names
    const section = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (section?.tagName !== "DETAILS") return;
    section.open = true;
    section.scrollIntoView();
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button"), box = event.target.closest(".cg-fits");
    if (button) sort(button);
    if (event.target.matches(".cg-more")) fits(box, Number(box.dataset.most));
    if (event.target.closest("nav a")?.hash === location.hash) open();  // again: no change of the address
  });
  document.addEventListener("input", (event) => {
    if (event.target.dataset.filter) filter(event.target);
    if (event.target.closest("#runs-shown")) runs();
    if (event.target.closest(".cg-fits")) fits(event.target.closest(".cg-fits"));
  });
  document.addEventListener("toggle", draw, true);
  addEventListener("hashchange", open);
  addEventListener("beforeprint", () => document.querySelectorAll("main > details").forEach((one) => { one.open = true; }));
  dark.addEventListener("change", draw);
  document.querySelectorAll(".cg-fits").forEach((box) => fits(box));
  open();
  draw();
})();
