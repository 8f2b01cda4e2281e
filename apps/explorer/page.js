// What the pages do beyond HTML: answers while a caption is typed, keys 0 to 5, and the keys of this browser's reviewers.
"use strict";
const find = selector => document.querySelector(selector);

document.addEventListener("keydown", event => {
  const elsewhere = event.repeat || event.ctrlKey || event.metaKey || event.altKey;
  if (elsewhere || event.target.matches("input, textarea, select") || !/^[0-5]$/.test(event.key)) return;
  find(`#cg-review button[name=score][value="${event.key}"]`)?.click();
});

document.addEventListener("DOMContentLoaded", () => {
  const query = find("#cg-query");
  let waiting;
  query?.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(async () => {
      const words = query.value;
      if (!words.trim()) return;
      const address = "/?" + new URLSearchParams(new FormData(query.form));
      const page = new DOMParser().parseFromString(await (await fetch(address)).text(), "text/html");
      if (words !== query.value) return;
      const answers = page.querySelector("#cg-answers")?.childNodes ?? page.querySelectorAll(".cg-problem");
      find("#cg-answers").replaceChildren(...answers);
      history.replaceState(null, "", address);
    }, 200);
  });

  const STORE = "capgrade-keys";  // name -> key, and "" -> the name that was last used
  let keys = {};
  try { keys = JSON.parse(localStorage.getItem(STORE)) ?? {}; } catch { /* a browser that keeps nothing */ }
  const review = find("#cg-review")?.dataset;
  if (review) {
    keys = {...keys, [review.reviewer]: review.key, "": review.reviewer};
    try { localStorage.setItem(STORE, JSON.stringify(keys)); } catch { /* the same */ }
  }
  const start = find("#cg-start");
  if (start) {
    start.elements.reviewer.value = keys[""] ?? "";
    start.elements.reviewer.focus();
    start.elements.reviewer.select();
  }
  start?.addEventListener("submit", () => {
    const {reviewer, key} = start.elements;
    key.value = key.value || (keys[reviewer.value.trim().split(/\s+/).join(" ")] ?? "");
  });
});
