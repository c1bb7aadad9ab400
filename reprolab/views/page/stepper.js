// The step cursor: everything here happens in the page; the kernel only hears where it came to rest.

import { choose, control, h, icon, listen } from "./dom.js";

const PLAY = "M4 2l9 6-9 6z";
const PAUSE = "M3 2h4v12H3zM9 2h4v12H9z";
const BACK = "M11 2v12L3 8z";
const AHEAD = "M5 2v12l8-6z";
const FLAG = "M3 1h2v14H3zM6 2h8l-3 3.5L14 9H6z";
const FRAME_MS = 110;

export function stepper(model, signal) {
  const { steps, first } = model.get("_summary");
  const place = () => Math.max(0, steps.indexOf(model.get("step")));
  const go = (index) => {
    const step = steps[Math.min(Math.max(index, 0), steps.length - 1)];
    if (step !== model.get("step")) choose(model, { step });
  };

  const slider = control("input", {
    type: "range", min: 0, max: Math.max(steps.length - 1, 0), step: 1, "aria-label": "Step",
    disabled: steps.length < 2,
    oninput: () => go(Number(slider.value)),
  });
  slider.addEventListener("keydown", (event) => {
    const sign = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
    if (!sign || !event.shiftKey) return;
    event.preventDefault();
    go(place() + 10 * sign);
  });
  const shown = h("output", { class: "rl-step" });

  let timer = null;
  const button = (name, path, act, more = {}) =>
    control(
      "button",
      { type: "button", class: "rl-button", "aria-label": name, title: name, onclick: act, ...more },
      icon(path),
    );
  const play = button("Play", PLAY, () => (timer === null ? start() : stop()), {
    disabled: steps.length < 2,
  });
  const face = (name, path) => {
    play.replaceChildren(icon(path));
    play.setAttribute("aria-label", name);
    play.title = `${name} (space)`;
  };
  const stop = () => {
    clearInterval(timer);
    timer = null;
    face("Play", PLAY);
  };
  const start = () => {
    if (place() === steps.length - 1) go(0);
    timer = setInterval(
      () => (place() >= steps.length - 1 ? stop() : go(place() + 1)),
      FRAME_MS,
    );
    face("Pause", PAUSE);
  };
  const jump = () => first && choose(model, first);
  const origin = control(
    "button",
    {
      type: "button", class: "rl-button rl-first", disabled: !first, onclick: jump,
      title: first ? "Go to the first difference (n)" : "There is no difference",
    },
    icon(FLAG),
    "First difference",
  );

  const show = () => {
    const index = place();
    slider.value = index;
    slider.setAttribute("aria-valuetext", `step ${steps[index]}`);
    slider.style.setProperty("--rl-fill", `${(100 * index) / Math.max(steps.length - 1, 1)}%`);
    const whole = steps.length > 1 ? ` of ${steps[0]}–${steps[steps.length - 1]}` : ", the only one";
    shown.textContent = `step ${model.get("step")}${whole}`;
  };
  listen(model, ["step"], signal, show);
  signal.addEventListener("abort", stop);
  show();

  const node = h(
    "div",
    { class: "rl-stepper", role: "group", "aria-label": "Step cursor" },
    button("Previous step", BACK, () => go(place() - 1), { disabled: steps.length < 2 }),
    play,
    button("Next step", AHEAD, () => go(place() + 1), { disabled: steps.length < 2 }),
    slider,
    shown,
    origin,
  );
  return { node, jump, toggle: () => play.click() };
}

export function selector(model, name, label, options, signal) {
  const select = control("select", {
    "aria-label": label,
    onchange: () => choose(model, { [name]: options[select.selectedIndex].value }),
  });
  select.append(...options.map((option) => h("option", {}, option.label)));
  const show = () => {
    select.selectedIndex = options.findIndex((option) => option.value === model.get(name));
  };
  listen(model, [name], signal, show);
  show();
  return h("label", { class: "rl-selector" }, label, select);
}
