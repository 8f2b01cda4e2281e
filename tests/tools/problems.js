// What of a page sticks out of it, which texts, or labels of a chart, overlap or are cut off, which have a contrast below
// 4.5.
() => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > innerWidth) found.push(`${root.scrollWidth} pixels wide`);

  const seenIn = (text) => {
    const style = getComputedStyle(text);
    return text.textContent.trim() && style.opacity !== "0" && text.getBoundingClientRect().width;
  };
  for (const svg of document.querySelectorAll(".vega svg")) {
    const frame = svg.getBoundingClientRect(), name = svg.closest(".vega").id;
    const texts = [...svg.querySelectorAll("text")].filter(seenIn);
    const boxes = texts.map((text) => [text.textContent, text.getBoundingClientRect()]);
    for (const [k, [text, a]] of boxes.entries()) {
      const outside = a.left < frame.left - 2 || a.right > frame.right + 2 || a.bottom > frame.bottom + 2;
      if (outside || text.endsWith("…")) found.push(`${name}: '${text}' is cut off`);
      for (const [other, b] of boxes.slice(k + 1)) {
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 1 && down > 3) found.push(`${name}: '${text}' on '${other}'`);
      }
    }
  }

  const blocks = [...document.querySelectorAll("h1, h2, h3, nav a, label, button, .cg-button, li, p, dt, dd, .cg-score")]
    .filter((one) => one.checkVisibility() && one.getClientRects().length).map((one) => [one, one.getBoundingClientRect()]);
  for (const [k, [one, a]] of blocks.entries()) {
    for (const [other, b] of blocks.slice(k + 1)) {
      const apart = a.left + 1 >= b.right || b.left + 1 >= a.right || a.top + 1 >= b.bottom || b.top + 1 >= a.bottom;
      if (!apart && !one.contains(other) && !other.contains(one)) found.push(`${one.outerHTML} on ${other.outerHTML}`);
    }
  }

  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const pixel = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (one) => {
    for (; one; one = one.parentElement) {
      const colour = pixel(getComputedStyle(one).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255, 255];
  };
  for (const one of document.querySelectorAll("body *")) {
    const words = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !one.getClientRects().length) continue;
    if (["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(one.tagName)) continue;
    const style = getComputedStyle(one), svg = one.closest(".vega svg");
    const [a, b] = [light(pixel(svg ? style.fill : style.color)), light(ground(svg ?? one))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), name = `${one.tagName} ${one.getAttribute("class") ?? ""}`;
    if (ratio < 4.5) found.push(`${name}: contrast ${ratio.toFixed(1)}`);
  }
  return [...new Set(found)];
}
