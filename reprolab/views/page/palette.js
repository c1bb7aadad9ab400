// One look for a distance everywhere: heat map, block map, legends. The ramp rises in lightness
// and runs from purple to yellow, so that it reads without red-green vision and keeps apart from
// the flat looks of "equal", "missing" and "not finite" on light and on dark pages.

export const MISSING = 0;
export const EQUAL = 1;
export const NOT_FINITE = 2;
export const UNRESOLVED = 3;
export const UNPAIRED = 4;
export const LOWEST = 5;
export const HIGHEST = 255;

const RAMP = [
  [98, 10, 168], [140, 16, 165], [176, 42, 144], [205, 72, 120],
  [226, 102, 96], [243, 135, 72], [252, 168, 54], [250, 208, 44],
];
const LOOKS = {
  light: { equal: "#e6e9ec", ink: "#1b1f24", hatch: "#9aa3ad", paper: "#ffffff" },
  dark: { equal: "#2d333a", ink: "#f2f4f7", hatch: "#6b7480", paper: "#111417" },
};

export const NAMES = {
  [MISSING]: "not recorded",
  [EQUAL]: "exactly equal",
  [NOT_FINITE]: "NaN or Inf",
  [UNRESOLVED]: "differs, too little to measure",
  [UNPAIRED]: "not the same tensor in both",
};

export function ramp(fraction) {
  const place = Math.min(Math.max(fraction, 0), 1) * (RAMP.length - 1);
  const at = Math.min(Math.floor(place), RAMP.length - 2);
  const mixed = RAMP[at].map((low, c) => Math.round(low + (RAMP[at + 1][c] - low) * (place - at)));
  return `rgb(${mixed.join(",")})`;
}

export function logarithm(code, [low, high]) {
  return low + ((code - LOWEST) / (HIGHEST - LOWEST)) * (high - low);
}

export function describe(code, range) {
  if (code in NAMES) return NAMES[code];
  const value = 10 ** logarithm(code, range);
  return `relative distance about ${value.toExponential(0).replace("+", "")}`;
}

// Paints for all 256 codes; patterns are made at device resolution to stay crisp.
export function paints(dark, ratio) {
  const look = dark ? LOOKS.dark : LOOKS.light;
  const all = [];
  all[MISSING] = pattern(ratio, look.paper, look.hatch, "stripe");
  all[EQUAL] = look.equal;
  all[NOT_FINITE] = pattern(ratio, look.ink, look.paper, "check");
  all[UNPAIRED] = pattern(ratio, look.equal, look.ink, "stripe");
  all[UNRESOLVED] = pattern(ratio, look.equal, ramp(dark ? 0.4 : 0.1), "dot");
  for (let code = LOWEST; code <= HIGHEST; code++) {
    all[code] = ramp((code - LOWEST) / (HIGHEST - LOWEST));
  }
  return { all, ...look };
}

function pattern(ratio, ground, mark, kind) {
  const size = Math.round(4 * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const pen = tile.getContext("2d");
  pen.fillStyle = ground;
  pen.fillRect(0, 0, size, size);
  pen.fillStyle = pen.strokeStyle = mark;
  pen.lineWidth = size / 5;
  if (kind === "check") {
    pen.fillRect(0, 0, size / 2, size / 2);
    pen.fillRect(size / 2, size / 2, size / 2, size / 2);
  } else if (kind === "dot") {
    pen.fillRect(size / 6, size / 6, size / 3, size / 3);
    pen.fillRect((size * 2) / 3, (size * 2) / 3, size / 3, size / 3);
  } else {
    pen.beginPath();
    for (const shift of [-size, 0, size]) {
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
    }
    pen.stroke();
  }
  return pen.createPattern(tile, "repeat");
}

export function swatch(code, dark) {
  const ratio = devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.className = "rl-swatch";
  canvas.setAttribute("aria-hidden", "true");
  canvas.width = canvas.height = Math.round(12 * ratio);
  const pen = canvas.getContext("2d");
  pen.fillStyle = paints(dark, ratio).all[code];
  pen.fillRect(0, 0, canvas.width, canvas.height);
  return canvas;
}

export function gradient() {
  const stops = RAMP.map((_, at) => ramp(at / (RAMP.length - 1)));
  return `linear-gradient(to right, ${stops.join(",")})`;
}
