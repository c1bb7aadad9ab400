// Nodes are made from text only, never from markup: a tensor named "<script>" stays a name.

const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

// A name may hold characters that are not seen but turn the text around them: they are spelt out.
export function visible(text) {
  return String(text).replace(
    UNSEEN, (found) => `⟨U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

export function h(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : visible(value));
  }
  const shown = children.filter((child) => child !== null && child !== undefined);
  node.append(...shown.map((child) => (child instanceof Node ? child : visible(child))));
  return node;
}

// JupyterLab takes single keys as commands unless the focused element itself says otherwise:
// without this attribute, typing "dd" over a slider deletes a notebook cell.
export function control(tag, attributes = {}, ...children) {
  return h(tag, { "data-lm-suppress-shortcuts": "true", ...attributes }, ...children);
}

export function icon(path) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const shape = document.createElementNS(space, "path");
  for (const [name, value] of [["viewBox", "0 0 16 16"], ["aria-hidden", "true"]]) {
    svg.setAttribute(name, value);
  }
  shape.setAttribute("d", path);
  svg.append(shape);
  return svg;
}

export function table(caption, columns, rows, classes = "") {
  const head = columns.map((column) => h("th", { scope: "col" }, column));
  const body = rows.map((row) => h("tr", {}, ...row.map((value) => h("td", {}, String(value)))));
  return h(
    "table",
    { class: `rl-table ${classes}` },
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...head)),
    h("tbody", {}, ...body),
  );
}

export function listen(model, names, signal, act) {
  for (const name of names) model.on(`change:${name}`, act);
  signal.addEventListener("abort", () => {
    for (const name of names) model.off(`change:${name}`, act);
  });
}

export function choose(model, changes) {
  for (const [name, value] of Object.entries(changes)) model.set(name, value);
  model.save_changes();
}

// The page's theme is judged by what is painted behind the view, so that JupyterLab's themes,
// other front ends and a plain page need no special case each.
export function isDark(node) {
  const [red, green, blue] = behind(node).match(/[\d.]+/g).map(Number);
  return 0.3 * red + 0.6 * green + 0.1 * blue < 128;
}

export function behind(node) {
  for (let at = node; at; at = at.parentElement) {
    const { backgroundColor } = getComputedStyle(at);
    const [, , blue, alpha = 1] = (backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
    if (blue !== undefined && alpha > 0.5) return backgroundColor;
  }
  return matchMedia("(prefers-color-scheme: dark)").matches ? "rgb(17, 17, 17)" : "rgb(255, 255, 255)";
}

export function onTheme(node, signal, act) {
  let dark = isDark(node);
  const check = () => {
    if (isDark(node) !== dark) {
      dark = !dark;
      act();
    }
  };
  // A theme's style sheet arrives after the attribute that announces it.
  const soon = () => [0, 150, 600].forEach((delay) => setTimeout(check, delay));
  const observer = new MutationObserver(soon);
  for (const target of [document.documentElement, document.body]) {
    observer.observe(target, { attributes: true });
  }
  const media = matchMedia("(prefers-color-scheme: dark)");
  media.addEventListener("change", soon, { signal });
  signal.addEventListener("abort", () => observer.disconnect());
}
