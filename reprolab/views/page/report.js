// Entry of a report: the page itself holds what a kernel would have answered.

import { render } from "./divergence.js";
import { describe, EQUAL } from "./palette.js";

class Stored {
  constructor({ state, heats, cells }) {
    this.state = state;
    this.heats = heats;
    this.cells = cells;
    this.listeners = {};
    this.state._heat = this.heat();
    this.state._cell = this.cell();
  }
  get(name) {
    return this.state[name];
  }
  set(name, value) {
    if (this.state[name] === value) return;
    this.state[name] = value;
    if (name === "stream" || name === "rank") this.turn();
    if (!name.startsWith("_")) this.set("_cell", this.cell());
    for (const act of this.listeners[`change:${name}`] ?? []) act();
  }
  turn() {
    this.set("_heat", this.heat());
    const { tensors, focus } = this.state._heat;
    if (!tensors.includes(this.state.tensor)) this.set("tensor", focus);
  }
  heat() {
    const { stream, rank } = this.state;
    const found = this.heats.find((heat) => heat.stream === stream && heat.rank === rank);
    return { ...found, frame: Uint8Array.from(atob(found.frame), (c) => c.charCodeAt(0)) };
  }
  cell() {
    const { step, stream, rank, tensor } = this.state;
    const stored = this.cells.find(
      (cell) => cell.step === step && cell.stream === stream && cell.tensor === tensor && cell.asked === rank,
    );
    if (stored) return stored;
    const { steps, tensors, frame, range } = this.state._heat;
    const [row, column] = [tensors.indexOf(tensor), steps.indexOf(step)];
    const code = row < 0 || column < 0 ? 0 : frame[row * steps.length + column];
    const says = describe(code, range);
    const more = code > EQUAL ? " The block map of this cell is in the live view." : "";
    return {
      step, stream, tensor, rank: rank === null ? "all ranks" : `rank ${rank}`,
      says: `${says[0].toUpperCase()}${says.slice(1)}.${more}`,
      facts: [], blocks: [], columns: [], rows: [],
    };
  }
  on(event, act) {
    (this.listeners[event] ??= []).push(act);
  }
  off(event, act) {
    this.listeners[event] = (this.listeners[event] ?? []).filter((other) => other !== act);
  }
  save_changes() {}
  send() {}
}

const stored = JSON.parse(document.getElementById("reprolab-data").textContent);
render({ model: new Stored(stored), el: document.getElementById("reprolab-view") });
