// Functions that the parts of the page share: messages, actions, and the display of memory.

export const at = (selector, inside = document) => inside.querySelector(selector);

export function say(text, place = at('#state')) {
  place.textContent = text;
  place.classList.remove('bad');
}

export function complain(text, place = at('#state')) {
  place.textContent = text;
  place.classList.add('bad');
}

// Runs an action with the controls of a section disabled, and reports its error.
export async function alone(section, work) {
  const controls = at('fieldset', section);
  const focused = document.activeElement;
  controls.disabled = true;
  try {
    await work();
  } catch (error) {
    complain(error.message ?? String(error), at('.state', section));
  } finally {
    controls.disabled = false;
    focused?.focus();
  }
}

// A program's memory report and its bar, in a section.
export function report(program, section) {
  const [live, reserved, all] = program.bytes();
  at('pre', section).textContent = program.memory();
  at('.live', section).style.width = `${100 * live / all}%`;
  at('.reserved', section).style.width = `${100 * reserved / all}%`;
}
