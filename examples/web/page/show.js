// Functions that the parts of the page share: messages, and the display of memory.

export const at = (selector, inside = document) => inside.querySelector(selector);

export function say(text, place = at('#state')) {
  place.textContent = text;
  place.classList.remove('bad');
}

export function complain(text, place = at('#state')) {
  place.textContent = text;
  place.classList.add('bad');
}

// A program's memory report and its bar, in a section.
export function report(program, section) {
  const [live, reserved, all] = program.bytes();
  at('pre', section).textContent = program.memory();
  at('.live', section).style.width = `${100 * live / all}%`;
  at('.reserved', section).style.width = `${100 * reserved / all}%`;
}
