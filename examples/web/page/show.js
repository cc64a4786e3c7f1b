// What the parts of the page share: how they say something, and how they show memory.

export const at = (selector, inside = document) => inside.querySelector(selector);

export function say(text, place = at('#state')) {
  place.textContent = text;
  place.classList.remove('bad');
}

export function complain(text, place = at('#state')) {
  place.textContent = text;
  place.classList.add('bad');
}

// The report of a program's memory, and its bar, in a section.
export function report(program, section) {
  const [live, reserved, all] = program.bytes();
  at('pre', section).textContent = program.memory();
  at('.live', section).style.width = `${100 * live / all}%`;
  at('.reserved', section).style.width = `${100 * reserved / all}%`;
}
