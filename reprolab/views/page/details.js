// The selected cell in words and numbers, and which blocks of the tensor differ.

import { h, isDark, listen, onTheme, table } from "./dom.js";
import { EQUAL, NAMES, paints } from "./palette.js";

const CELL = 12;
const GAP = 2;

export function details(model, signal) {
  const node = h("section", { class: "rl-details", "aria-label": "Selected cell" });

  function show() {
    const cell = model.get("_cell");
    if (!cell?.tensor) {
      node.replaceChildren(h("p", { class: "rl-note" }, "Select a cell of the heat map."));
      return;
    }
    const facts = h("dl", { class: "rl-facts-list" });
    for (const [name, value] of cell.facts) facts.append(h("dt", {}, name), h("dd", {}, value));
    node.replaceChildren(
      h("h3", { class: "rl-name" }, cell.tensor),
      h("p", { class: "rl-where" }, `step ${cell.step} · ${cell.stream} · ${cell.rank}`),
      h("p", { class: "rl-says" }, cell.says),
      facts,
      cell.blocks.length ? blocks(cell) : "",
      cell.rows.length && cell.blocks.length > 1 ? numbers(cell) : "",
    );
    stale();
  }

  function blocks(cell) {
    const canvas = h("canvas", { class: "rl-blocks", role: "img" });
    canvas.setAttribute("aria-label", cell.map);
    const draw = () => {
      const width = canvas.parentElement?.clientWidth ?? 0;
      if (!width) return;
      const ratio = devicePixelRatio || 1;
      const across = Math.max(1, Math.min(cell.blocks.length, Math.floor(width / CELL)));
      const down = Math.ceil(cell.blocks.length / across);
      canvas.width = across * CELL * ratio;
      canvas.height = down * CELL * ratio;
      canvas.style.width = `${across * CELL}px`;
      canvas.style.height = `${down * CELL}px`;
      const pen = canvas.getContext("2d");
      const { all } = paints(isDark(canvas), ratio);
      cell.blocks.forEach((code, at) => {
        const [x, y] = [(at % across) * CELL, Math.floor(at / across) * CELL];
        pen.fillStyle = all[code];
        pen.fillRect(x * ratio, y * ratio, (CELL - GAP) * ratio, (CELL - GAP) * ratio);
      });
    };
    canvas.addEventListener("pointermove", (event) => {
      const box = canvas.getBoundingClientRect();
      const across = Math.round(box.width / CELL);
      const at = Math.floor((event.clientY - box.top) / CELL) * across + Math.floor((event.clientX - box.left) / CELL);
      const code = cell.blocks[at];
      canvas.title = code === undefined ? "" : `block ${at}: ${NAMES[code] ?? "differs"}`;
    });
    requestAnimationFrame(draw);
    onTheme(node, signal, draw);
    const different = cell.blocks.filter((code) => code !== EQUAL).length;
    return h(
      "figure", { class: "rl-blockmap" },
      h("figcaption", {}, `blocks: ${different} of ${cell.blocks.length} differ`),
      canvas,
    );
  }

  const numbers = (cell) =>
    h("div", { class: "rl-rows" }, table(cell.caption, cell.columns, cell.rows, "rl-numbers"));

  // Until the kernel has answered for this cell, the numbers of the former one are dimmed.
  const stale = () => {
    const cell = model.get("_cell");
    const old = ["step", "stream", "tensor"].some((name) => cell[name] !== model.get(name));
    node.classList.toggle("rl-stale", old);
  };

  listen(model, ["_cell"], signal, show);
  listen(model, ["step", "stream", "tensor", "rank"], signal, stale);
  show();
  return node;
}
