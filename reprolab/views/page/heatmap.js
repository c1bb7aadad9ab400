// Tensor x step on two canvases: the map is drawn once a frame, the cursor on top at every move.

import { behind, choose, control, h, isDark, listen, onTheme, visible } from "./dom.js";
import {
  describe, EQUAL, gradient, HIGHEST, LOWEST, MISSING, NOT_FINITE, paints, swatch, UNPAIRED, UNRESOLVED,
} from "./palette.js";

const PLOT = 172;
const ROW = [3, 18];
const AXIS = 20;
const PAD = 6;
const MARKER = 12;
const WIDEST = 64;
const TALLEST = 16000;
const LABEL = 11;

export function heatmap(model, signal) {
  const base = h("canvas", { class: "rl-base", "aria-hidden": "true" });
  const over = control("canvas", {
    class: "rl-over", tabindex: 0, role: "application", "aria-roledescription": "heat map",
    "aria-label": "Heat map of tensors by steps. Arrow keys move the cell.",
  });
  const axis = h("canvas", { class: "rl-axis", "aria-hidden": "true" });
  const tip = h("div", { class: "rl-tip", hidden: true });
  const scroller = h("div", { class: "rl-scroller" }, h("div", { class: "rl-stack" }, base, over));
  const title = h("figcaption");
  const legend = h("div", { class: "rl-legend" });
  const node = h("figure", { class: "rl-heat" }, title, scroller, axis, legend, tip);

  let heat, cells, shape, colours, font, hover;

  const at = () => ({
    column: heat.steps.indexOf(model.get("step")),
    row: heat.tensors.indexOf(model.get("tensor")),
  });
  const code = (row, column) => cells[row * heat.steps.length + column];

  function measure() {
    const [rows, columns] = [heat.tensors.length, heat.steps.length];
    const width = Math.max(node.clientWidth, 120);
    const pen = base.getContext("2d");
    pen.font = `bold ${font}`;
    const shown = heat.tensors.map(visible);
    const longest = shown.reduce((far, name) => Math.max(far, pen.measureText(name).width), 0);
    const gutter = Math.ceil(Math.min(longest + MARKER + 10, width * 0.36, 230));
    const row = Math.min(Math.max(PLOT / rows, ROW[0]), ROW[1], TALLEST / rows);
    const bar = row * rows > PLOT + 1 ? 12 : 0;
    shape = { rows, columns, width: width - bar, gutter, row, height: row * rows + 2 * PAD };
    shape.names = shown.map((name) => fit(pen, name));
    shape.column = Math.min((shape.width - gutter - 6) / columns, WIDEST);
    scroller.style.maxHeight = `${PLOT + 2 * PAD}px`;
  }

  function size(canvas, height) {
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(shape.width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${shape.width}px`;
    canvas.style.height = `${height}px`;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    pen.font = font;
    return pen;
  }

  // Edges are rounded to device pixels, so that neighbouring cells neither blur nor gap.
  const snap = (value) => Math.round(value * (devicePixelRatio || 1)) / (devicePixelRatio || 1);
  const left = (column) => snap(shape.gutter + column * shape.column);
  const top = (row) => snap(PAD + row * shape.row);

  function drawBase() {
    const pen = size(base, shape.height);
    const gap = shape.row >= 6 && shape.column >= 6 ? 1 : 0;
    // Where many cells share a pixel the largest difference must win, so equal cells go first.
    const order = shape.column < 1 || shape.row < 1 ? [[0, 1], [2, 255]] : [[0, 255]];
    for (const [low, high] of order) {
      for (let row = 0; row < shape.rows; row++) {
        const [y, bottom] = [top(row), top(row + 1)];
        for (let column = 0; column < shape.columns; column++) {
          const value = code(row, column);
          if (value < low || value > high) continue;
          const x = left(column);
          pen.fillStyle = colours.all[value];
          pen.fillRect(
            x, y, Math.max(left(column + 1) - x - gap, 1), Math.max(bottom - y - gap, 1),
          );
        }
      }
    }
  }

  // The chosen name always stands in full, and those that would touch it give way.
  function labels(pen, chosen) {
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    const write = (row, y) => pen.fillText(shape.names[row], shape.gutter - MARKER - 2, y);
    const height = LABEL + 2;
    const bound = (y) => Math.min(Math.max(y, height / 2), shape.height - height / 2);
    const middle = (row) => bound(top(row) + shape.row / 2);
    const every = Math.max(1, Math.ceil(height / shape.row));
    pen.fillStyle = colours.muted;
    for (let row = 0; row < shape.rows; row += every) {
      const clash = chosen >= 0 && Math.abs(middle(row) - middle(chosen)) < height;
      if (!clash) write(row, middle(row));
    }
    if (chosen < 0) return;
    pen.fillStyle = colours.ink;
    pen.font = `bold ${font}`;
    write(chosen, middle(chosen));
  }

  function fit(pen, name) {
    const room = shape.gutter - MARKER - 4;
    if (pen.measureText(name).width <= room) return name;
    let keep = name.length;
    let short = name;
    while (keep > 3 && pen.measureText(short).width > room) {
      keep -= 1;
      const head = Math.floor(keep / 3);
      short = `${name.slice(0, head)}…${name.slice(name.length - (keep - head))}`;
    }
    return short;
  }

  function drawAxis() {
    const pen = size(axis, AXIS);
    pen.fillStyle = colours.muted;
    pen.strokeStyle = colours.muted;
    pen.textBaseline = "top";
    pen.textAlign = "center";
    const room = Math.max(1, Math.ceil(44 / shape.column));
    const nice = [1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000].find((n) => n >= room) ?? room;
    for (let column = 0; column < shape.columns; column += nice) {
      const x = left(column) + shape.column / 2;
      pen.fillRect(x, 0, 1, 4);
      pen.fillText(heat.steps[column], x, 6);
    }
    pen.textAlign = "left";
    pen.fillText("step", 0, 6);
  }

  function drawOver() {
    const pen = size(over, shape.height);
    const { row, column } = at();
    const first = model.get("_summary").first;
    // Frames stand around what they mark: a cell may be no larger than a frame's line.
    const frame = (x, y, width, height, style, line) => {
      for (const [colour, extra] of [[colours.paper, 2], [style, 0]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = line + extra;
        pen.strokeRect(x - line / 2, y - line / 2, width + line, height + line);
      }
    };
    labels(pen, row);
    if (column >= 0) {
      frame(left(column), PAD - 3, left(column + 1) - left(column), shape.height - 2 * PAD + 6, colours.ink, 1);
    }
    if (row >= 0 && column >= 0) {
      frame(
        left(column), top(row), left(column + 1) - left(column), top(row + 1) - top(row), colours.accent, 2,
      );
    }
    if (first && first.stream === heat.stream) {
      flag(pen, heat.tensors.indexOf(first.tensor), heat.steps.indexOf(first.step));
    }
  }

  function flag(pen, row, column) {
    if (row < 0 || column < 0) return;
    const [x, y] = [left(column) - 3, top(row) + shape.row / 2];
    pen.beginPath();
    pen.moveTo(x, y);
    pen.lineTo(x - 9, y - 5.5);
    pen.lineTo(x - 9, y + 5.5);
    pen.closePath();
    pen.lineWidth = 3;
    pen.strokeStyle = colours.paper;
    pen.stroke();
    pen.fillStyle = colours.accent;
    pen.fill();
  }

  function drawLegend(dark) {
    const [low, high] = heat.range;
    const seen = new Set(cells);
    const scale = h("span", { class: "rl-ramp" });
    scale.style.background = gradient();
    const flat = [EQUAL, UNRESOLVED, NOT_FINITE, UNPAIRED, MISSING]
      .filter((kind) => seen.has(kind))
      .map((kind) => h("span", {}, swatch(kind, dark), describe(kind)));
    const measured = [...seen].some((value) => value >= LOWEST && value <= HIGHEST);
    legend.replaceChildren(
      measured
        ? h("span", { class: "rl-scale" }, power(low), scale, power(high), h("span", { class: "rl-note" }, "relative distance"))
        : "",
      ...flat,
      model.get("_summary").first?.stream === heat.stream
        ? h("span", {}, h("span", { class: "rl-flag", "aria-hidden": "true" }), "first difference")
        : "",
    );
  }
  const power = (exponent) => h("span", {}, "10", h("sup", {}, String(exponent).replace("-", "−")));

  function whole() {
    heat = model.get("_heat");
    cells = new Uint8Array(heat.frame.buffer ?? heat.frame, heat.frame.byteOffset ?? 0, heat.frame.byteLength);
    const empty = !cells.length;
    scroller.hidden = axis.hidden = legend.hidden = empty;
    const ranks = heat.rank === null ? "all ranks (largest)" : `rank ${heat.rank}`;
    title.replaceChildren(
      h("strong", {}, heat.stream || "no stream"),
      empty ? " · nothing was recorded here" : ` · tensor × step · ${ranks}`,
    );
    if (empty || !node.clientWidth) return;
    const dark = isDark(node);
    const style = getComputedStyle(node);
    font = `${LABEL}px ${style.fontFamily}`;
    colours = paints(dark, devicePixelRatio || 1);
    colours.paper = behind(node);
    colours.muted = style.getPropertyValue("--rl-muted");
    colours.accent = style.getPropertyValue("--rl-accent");
    measure();
    drawBase();
    drawAxis();
    drawLegend(dark);
    drawOver();
    stale();
  }

  const stale = () =>
    node.classList.toggle(
      "rl-stale", heat.stream !== model.get("stream") || heat.rank !== model.get("rank"),
    );

  function move() {
    if (!shape || !cells.length) return;
    drawOver();
    const { row, column } = at();
    if (row >= 0) {
      const [low, high] = [top(row), top(row + 1)];
      if (low - PAD < scroller.scrollTop) scroller.scrollTop = low - PAD;
      if (high + PAD > scroller.scrollTop + scroller.clientHeight) {
        scroller.scrollTop = high + PAD - scroller.clientHeight;
      }
    }
    over.setAttribute("aria-description", row >= 0 && column >= 0 ? say(row, column) : "");
  }
  const say = (row, column) =>
    `${visible(heat.tensors[row])}, step ${heat.steps[column]}: ${describe(code(row, column), heat.range)}`;

  function under(event) {
    const box = over.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - PAD) / shape.row);
    const column = Math.floor((event.clientX - box.left - shape.gutter) / shape.column);
    if (row < 0 || row >= shape.rows || column < 0 || column >= shape.columns) return null;
    return { row, column };
  }
  function pick(row, column) {
    if (node.classList.contains("rl-stale")) return;
    const inside = (value, count) => Math.min(Math.max(value, 0), count - 1);
    choose(model, {
      step: heat.steps[inside(column, shape.columns)],
      tensor: heat.tensors[inside(row, shape.rows)],
    });
  }

  over.addEventListener("pointerdown", (event) => {
    const cell = under(event);
    if (cell) pick(cell.row, cell.column);
  });
  over.addEventListener("pointermove", (event) => {
    hover = under(event);
    tip.hidden = !hover;
    if (!hover) return;
    tip.textContent = say(hover.row, hover.column);
    const box = node.getBoundingClientRect();
    const x = event.clientX - box.left;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
    if (event.buttons & 1) pick(hover.row, hover.column);
  });
  over.addEventListener("pointerleave", () => (tip.hidden = true));
  over.addEventListener("keydown", (event) => {
    const stride = event.shiftKey ? 10 : 1;
    const moves = {
      ArrowLeft: [0, -stride], ArrowRight: [0, stride], ArrowUp: [-stride, 0], ArrowDown: [stride, 0],
      PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
    };
    const by = moves[event.key];
    if (!by || !shape) return;
    event.preventDefault();
    const { row, column } = at();
    pick(Math.max(row, 0) + by[0], Math.max(column, 0) + by[1]);
  });

  listen(model, ["_heat"], signal, whole);
  listen(model, ["step", "tensor"], signal, move);
  listen(model, ["stream", "rank"], signal, stale);
  onTheme(node, signal, whole);
  const observer = new ResizeObserver(whole);
  observer.observe(node);
  signal.addEventListener("abort", () => observer.disconnect());
  return node;
}
