// Numbers and untrusted text for people. Every string of a snapshot goes through `printable` and is
// then shown as text, never as markup.

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

// An untrusted text on one line. Control characters, changes of the text's direction and invisible
// characters are escaped. A long one is cut in the middle: names mostly differ at their ends.
function printable(text, most = 200) {
  const all = String(text);
  const half = most >> 1;
  const short = all.length > most ? all.slice(0, most - half) + "…" + all.slice(-half) : all;
  return short.replace(HIDDEN, c => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

function bytesText(bytes) {
  if (!(Math.abs(bytes) >= 1024)) return Math.round(bytes) + " B";
  let unit = 0;
  while (Math.abs(bytes) >= 999.5 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit++;
  }
  const size = Math.abs(bytes);
  return bytes.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0) + " " + UNITS[unit];
}

function signedBytesText(bytes) {
  return bytes === 0 ? "0" : (bytes > 0 ? "+" : "−") + bytesText(Math.abs(bytes));
}

const countFormat = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const countText = count => countFormat.format(count);

const counted = (count, what) => countText(count) + " " + what + (count === 1 ? "" : "s");

function percentText(share) {
  const percent = 100 * share;
  return (percent > 0 && percent < 9.95 ? percent.toFixed(1) : Math.round(percent)) + " %";
}

// A time since the device was opened. `stepNs` is the necessary precision.
function timeText(ns, stepNs = ns / 1000) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const at = units.findIndex(([, size]) => Math.abs(ns) >= size);
  const [name, size] = units[at < 0 ? 3 : at];
  const decimals = Math.max(0, Math.min(9, Math.ceil(Math.log10(size / Math.max(stepNs, 1e-3)) - 1e-9)));
  return (ns / size).toFixed(Math.min(decimals, Math.round(Math.log10(size)))) + " " + name;
}

// The steps of an axis, about `most` of them between two values.
function ticks(from, to, most, base = 10) {
  const raw = (to - from) / Math.max(most, 1);
  if (!(raw > 0)) return { step: 1, at: [] };
  const power = base ** Math.floor(Math.log(raw) / Math.log(base));
  const multiples = base === 10 ? [1, 2, 5, 10] : [1, 2];
  const step = power * multiples.find(multiple => multiple * power >= raw * 0.999);
  const at = [];
  for (let i = Math.ceil(from / step); i * step <= to && at.length < 100; i++) at.push(i * step);
  return { step, at };
}
