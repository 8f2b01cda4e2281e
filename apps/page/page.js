"use strict";
// Draws the charts of what is open, and lets readers sort and filter; the page says everything without it but the charts.
// Where `capgrade explore --audit` serves it, listed pairs take accept and reject.
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
    apart(head);
  }

  function apart(head) {  // a line between the groups of the column that rows are sorted by
    let last;
    for (const row of head.closest("table").tBodies[0].rows) {
      const { group } = row.cells[head.cellIndex].dataset;
      row.classList.toggle("cg-apart", last !== undefined && group !== last);
      last = group;
    }
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

  const KEYS = "capgrade-keys";  // of this browser's reviewers, as the explorer keeps them

  function keys() {
    try { return JSON.parse(localStorage.getItem(KEYS)) ?? {}; } catch { return {}; }
  }

  function say(problem) {
    for (const place of document.querySelectorAll(".cg-reviewer [role=alert]")) place.textContent = problem;
  }

  async function begin(name, key) {  // shows the buttons of pairs that are in the review, with what the reviewer said
    const body = new FormData();
    body.set("reviewer", name);
    body.set("key", key || (keys()[name.trim().split(/\s+/).join(" ")] ?? ""));
    const answer = await (await fetch("/audit", { method: "POST", body })).json();
    if (answer.problem) return say(answer.problem);
    try { localStorage.setItem(KEYS, JSON.stringify({ ...keys(), [answer.reviewer]: answer.key, "": answer.reviewer })); } catch { /* a browser that keeps nothing */ }
    reviewer = answer;
    const items = new Map(answer.items.map(([image, caption, score], item) => [JSON.stringify([image, caption]), [item, score]]));
    for (const card of document.querySelectorAll("li[data-caption]")) {
      const found = items.get(JSON.stringify([card.dataset.image, card.dataset.caption]));
      if (!found) continue;
      card.dataset.item = found[0];
      card.querySelector(".cg-judge").hidden = false;
      press(card, found[1]);
    }
    say(`${answer.reviewer}, key ${answer.key}`);
  }

  function press(card, score) {
    for (const button of card.querySelectorAll(".cg-judge button")) button.setAttribute("aria-pressed", Number(button.value) === score);
  }

  let reviewer = null;

  async function judge(button) {  // by the form of the explorer's review, which saves every rating
    const card = button.closest("li"), body = new FormData();
    for (const [name, value] of [["reviewer", reviewer.reviewer], ["key", reviewer.key], ["item", card.dataset.item], ["score", button.value]]) body.set(name, value);
    try {
      const page = new DOMParser().parseFromString(await (await fetch("/review", { method: "POST", body })).text(), "text/html");
      const problem = page.querySelector(".cg-problem")?.textContent;
      if (problem) return say(problem);
      press(card, Number(button.value));
      say(page.querySelector(".cg-done span")?.textContent ?? "");
    } catch (error) { say(`NOT SAVED: ${error.message}`); }
  }

  function serve() {
    if (location.pathname !== "/audit" || !location.protocol.startsWith("http")) return;
    for (const form of document.querySelectorAll(".cg-reviewer")) {
      form.hidden = false;
      form.elements.reviewer.value = keys()[""] ?? "";
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        begin(form.elements.reviewer.value, form.elements.key.value).catch((error) => say(error.message));
      });
    }
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
    if (event.target.matches(".cg-judge button")) judge(event.target);
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
  document.querySelectorAll("th[aria-sort=descending]").forEach(apart);
  serve();
  open();
  draw();
})();
