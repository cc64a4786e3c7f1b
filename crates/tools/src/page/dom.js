// Elements, the tooltip, and canvases in the screen's resolution.

// Creates an element. Strings become text nodes, never markup.
function el(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style") for (const [property, set] of Object.entries(value)) element.style.setProperty(property, set);
    else element.setAttribute(key, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

const byId = id => document.getElementById(id);

// The end of a name that stays visible where there is no room for all of it.
const END = 14;

// A name that is cut in the middle if it has no room.
function cutName(words, element = "span") {
  const letters = [...words];
  const at = Math.max(0, letters.length - Math.min(END, letters.length >> 1));
  return el(element, { class: "name" }, el("span", {}, letters.slice(0, at).join("")), el("span", {}, letters.slice(at).join("")));
}

const swatch = color => el("i", { class: "swatch", style: { background: color } });

// Gives the canvas the screen's number of pixels. Returns its size and whether that changed.
function fitCanvas(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = Math.max(1, Math.round(canvas.clientWidth * ratio)), height = Math.max(1, Math.round(canvas.clientHeight * ratio));
  const isNew = canvas.width !== width || canvas.height !== height;
  if (isNew) Object.assign(canvas, { width, height });
  return { context: canvas.getContext("2d"), width, height, ratio, isNew };
}

const tooltip = {
  show(x, y, ...rows) {
    const box = byId("tooltip");
    box.replaceChildren(...rows.filter(row => row != null));
    box.hidden = false;
    const { offsetWidth, offsetHeight } = box;
    const left = x + 16 + offsetWidth > innerWidth ? x - 16 - offsetWidth : x + 16;
    const top = y + 18 + offsetHeight > innerHeight ? y - 12 - offsetHeight : y + 18;
    box.style.left = Math.max(4, left) + "px";
    box.style.top = Math.max(4, top) + "px";
  },
  hide() { byId("tooltip").hidden = true; },
};

const fact = (what, value, mark = null) => el("div", { class: "fact" }, el("span", {}, mark, cutName(what)), el("b", {}, value));

// Announces a text to screen readers.
function say(words) { byId("spoken").textContent = words; }
