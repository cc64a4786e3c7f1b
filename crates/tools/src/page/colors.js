// Colours for both themes. Those of tags are distinct for the three kinds of colour blindness.

const TAG_COLORS = {
  light: ["#60abef", "#792b5e", "#f0d772", "#ba7425", "#556991", "#db83b8", "#534f1e", "#a7e7d6", "#a7ac47", "#144c8f", "#8378cd", "#8c5955"],
  dark: ["#70b4f3", "#934132", "#c4ae52", "#a16a15", "#3c5b9e", "#b07eae", "#829d60", "#8bbba0", "#cbcfa0", "#028c6a", "#7c6ca6", "#5fdff2"],
};

// By size: upper bounds of the bytes of a block. The last colour is for all larger blocks.
const SIZES = [4096, 65536, 262144, 1048576, 4194304, 16777216, 134217728, Infinity];
const SIZE_COLORS = {
  light: ["#dbe7f3", "#bdd5ea", "#97bfdf", "#6fa5d0", "#4a8abd", "#2f6ea4", "#1d5386", "#0f3a64"],
  dark: ["#1f3a57", "#264f78", "#2f6699", "#3f7eb6", "#5a97cb", "#7db2dd", "#a5cdeb", "#d3e7f6"],
};

const STATE_COLORS = {
  light: { came: ["#a9adb5", "#6f8fb3", "#44aa99", "#aa4499", "#88ccee"], Pinned: "#ddaa33", Clean: "#cc6677" },
  dark: { came: ["#6c717b", "#6d93bf", "#4fb3a2", "#bb66ad", "#9ad4f0"], Pinned: "#e0b548", Clean: "#d97b8b" },
};
const CAME_WORDS = ["older than the history", "new", "took over a place", "moved", "restored"];

function themeNow() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

// All colours and fonts of the canvases.
function inks() {
  const theme = themeNow();
  const style = getComputedStyle(document.documentElement);
  const ink = name => style.getPropertyValue("--" + name).trim();
  return {
    theme,
    tags: [...TAG_COLORS[theme], ink("other"), ink("accent")],
    sizes: SIZE_COLORS[theme],
    states: STATE_COLORS[theme],
    font: style.getPropertyValue("--font").trim(),
    ...Object.fromEntries(["text", "soft", "faint", "line", "panel", "free", "cached", "accent", "slab", "reclaim", "evict", "refuse", "submit", "other"].map(name => [name, ink(name)])),
  };
}

const knownParts = new Map();

// Red, green and blue of `#rrggbb` or `rgb(r g b)`.
function partsOf(color) {
  let parts = knownParts.get(color);
  if (!parts) {
    parts = color[0] === "#" ? [1, 3, 5].map(at => parseInt(color.slice(at, at + 2), 16)) : color.match(/\d+/g).map(Number);
    knownParts.set(color, parts);
  }
  return parts;
}

const knownFaded = new Map();

// The colour, mixed mostly with the background.
function faded(color, panel) {
  const key = color + panel;
  let mixed = knownFaded.get(key);
  if (!mixed) {
    const [a, b] = [partsOf(color), partsOf(panel)];
    mixed = "rgb(" + a.map((part, i) => Math.round(part * 0.18 + b[i] * 0.82)).join(" ") + ")";
    knownFaded.set(key, mixed);
  }
  return mixed;
}
