// The whole view: verdict, step cursor, two charts, heat map, selected cell, differences.

import { chart } from "./charts.js";
import { details } from "./details.js";
import { h, isDark, listen, onTheme, table, visible } from "./dom.js";
import { heatmap } from "./heatmap.js";
import { selector, stepper } from "./stepper.js";

export function render({ model, el }) {
  const cleanup = new AbortController();
  const { signal } = cleanup;
  const summary = model.get("_summary");
  const alert = h("p", { class: "rl-error", role: "alert" });
  const report = () => {
    alert.textContent = visible(model.get("_error"));
    alert.hidden = !alert.textContent;
  };
  listen(model, ["_error"], signal, report);
  report();

  const root = h(
    "section",
    { class: "rl-view", "aria-label": `Divergence of ${summary.names.join(" and ")}` },
    alert,
    verdict(summary),
  );
  el.replaceChildren(root);
  const tint = () => root.classList.toggle("rl-dark", isDark(root));
  // Registered first: the parts read their colours from the root when they redraw.
  onTheme(root, signal, tint);
  tint();
  if (summary.steps.length) {
    const cursor = stepper(model, signal);
    const streams = summary.streams.map((value) => ({
      value, label: summary.differing.includes(value) ? `${value} ≠` : `${value} =`,
    }));
    const ranks = [{ value: null, label: "all" }].concat(
      summary.ranks.map((value) => ({ value, label: String(value) })),
    );
    root.append(
      h(
        "div", { class: "rl-controls" }, cursor.node,
        selector(model, "stream", "Stream", streams, signal),
        selector(model, "rank", "Rank", ranks, signal),
      ),
      h(
        "div", { class: "rl-charts" },
        chart(model, "loss", "Loss of both runs", signal),
        chart(model, "distance", "Relative distance of the two runs", signal),
      ),
      h("div", { class: "rl-main" }, heatmap(model, signal), details(model, signal)),
    );
    root.addEventListener("keydown", (event) => keys(event, cursor));
  }
  if (!summary.bare) root.append(differences(summary));
  return () => {
    cleanup.abort();
    root.remove();
  };
}

function keys(event, cursor) {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
  if (event.key === "n") cursor.jump();
  else if (event.key === " " && event.target.tagName !== "BUTTON") {
    event.preventDefault();
    cursor.toggle();
  }
}

function verdict({ same, headline, rest }) {
  return h(
    "header", { class: "rl-verdict" },
    h("p", {},
      h("span", { class: `rl-badge ${same ? "rl-same" : "rl-different"}` }, same ? "same" : "different"),
      h("strong", {}, headline), rest ? ` ${rest}` : ""),
  );
}

function differences({ configuration, environment, notes, names }) {
  const count = (number, word) => `${number || "no"} ${word}${number === 1 ? "" : "s"}`;
  const heading = [
    `${count(configuration.length, "configuration difference")}`,
    `${count(environment.length, "environment difference")}`,
    `${count(notes.length, "note")}`,
  ].join(" · ");
  const columns = ["key", ...names];
  return h(
    "details", { class: "rl-facts" },
    h("summary", { "data-lm-suppress-shortcuts": "true" }, heading),
    configuration.length ? table("Configuration", columns, configuration) : "",
    environment.length ? table("Environment", columns, environment) : "",
    notes.length ? h("ul", {}, ...notes.map((note) => h("li", {}, note))) : "",
  );
}
