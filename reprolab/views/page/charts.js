// Line charts drawn by Vega from specifications that Altair wrote; the step cursor is a signal.

import { choose, h, isDark, listen, onTheme } from "./dom.js";

const VEGA = Symbol.for("reprolab.vega");
const asked = new WeakMap();

// The library is some 0.9 MB: a page gets it once, however many views it shows, and it comes over
// the kernel's own connection, never from a network. A view whose kernel has gone gets no answer;
// those that come later must not wait for it, so each asks for itself until one has it.
function vega(model) {
  if (globalThis[VEGA]) return Promise.resolve(globalThis[VEGA]);
  if (!asked.has(model)) {
    asked.set(model, new Promise((resolve, reject) => {
      const receive = async (message, buffers) => {
        if (message?.kind !== "vega") return;
        model.off("msg:custom", receive);
        const address = URL.createObjectURL(new Blob([buffers[0]], { type: "text/javascript" }));
        try {
          await import(address);
          resolve(globalThis[VEGA]);
        } catch (error) {
          reject(error);
        } finally {
          URL.revokeObjectURL(address);
        }
      };
      model.on("msg:custom", receive);
      model.send({ kind: "vega" });
    }));
  }
  return asked.get(model);
}

export function chart(model, name, label, signal) {
  const host = h("div", { class: "rl-chart", role: "img", "aria-label": label });
  const note = h("p", { class: "rl-note" });
  const node = h("figure", { class: "rl-figure" }, h("figcaption", {}, label), host, note);
  let drawn = null;

  async function draw() {
    const spec = model.get("_charts")[name];
    note.textContent = spec ? "" : "Neither run recorded this.";
    host.hidden = !spec;
    if (!spec || !host.clientWidth) return;
    try {
      const embed = await vega(model);
      if (signal.aborted) return;
      drawn?.finalize();
      const width = host.clientWidth;
      drawn = await embed(host, { ...spec, width }, {
        actions: false, defaultStyle: false, renderer: "canvas", ast: true, config: theme(host, width), mode: "vega-lite",
      });
      drawn.width = width;
      drawn.view.addEventListener("click", (event) => jump(event));
      move();
    } catch (error) {
      note.textContent = `The chart could not be drawn: ${error.message}`;
    }
  }

  function jump(event) {
    const scale = drawn.view.scale("x");
    const box = host.querySelector("canvas").getBoundingClientRect();
    const step = scale.invert(event.clientX - box.left - drawn.view.origin()[0]);
    const { steps } = model.get("_summary");
    const near = steps.reduce((best, s) => (Math.abs(s - step) < Math.abs(best - step) ? s : best));
    choose(model, { step: near });
  }

  function move() {
    drawn?.view.signal("step", model.get("step")).signal("stream", model.get("stream")).runAsync();
  }

  function resize() {
    if (!drawn) draw();
    else if (host.clientWidth && host.clientWidth !== drawn.width) draw();
  }

  listen(model, ["_charts"], signal, draw);
  listen(model, ["step", "stream"], signal, move);
  onTheme(host, signal, draw);
  const observer = new ResizeObserver(resize);
  observer.observe(host);
  signal.addEventListener("abort", () => {
    observer.disconnect();
    drawn?.finalize();
  });
  return node;
}

function theme(host, width) {
  const style = getComputedStyle(host);
  const token = (name) => style.getPropertyValue(name).trim();
  const text = { labelColor: token("--rl-muted"), titleColor: token("--rl-fg") };
  const lettering = { labelFont: style.fontFamily, titleFont: style.fontFamily, titleFontWeight: "normal" };
  return {
    background: null,
    view: { stroke: null },
    font: style.fontFamily,
    axis: {
      ...text, ...lettering, gridColor: token("--rl-line"), domainColor: token("--rl-muted"),
      tickColor: token("--rl-muted"), gridOpacity: isDark(host) ? 0.5 : 0.8,
    },
    legend: {
      ...text, ...lettering, symbolStrokeWidth: 2, columns: Math.max(1, Math.floor((width - 50) / 88)),
    },
    style: { first: { stroke: token("--rl-accent") }, flag: { color: token("--rl-accent") } },
    rule: { color: token("--rl-fg") },
    text: { color: token("--rl-muted") },
  };
}
