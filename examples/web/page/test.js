// The test of the library, as a table.
import { devices, destroyDevices, errors } from './devices.js';
import { at, complain, say } from './show.js';

function row(name, isGood, sentence) {
  const tr = at('#test tbody').insertRow();
  tr.className = isGood ? 'good' : 'bad';
  for (const text of [name, isGood ? 'good' : 'BAD', sentence]) tr.insertCell().textContent = text;
}

// Runs the test. The result is also in `lapidary.tested`, for programs.
export async function test(program) {
  const tested = { parts: 0, failed: [], snapshot: 0 };
  const button = at('#test button');
  button.disabled = true;
  errors.length = 0;
  // Devices opened before belong to other parts of the page.
  const mark = devices.length;
  lapidary.destroyDevices = () => destroyDevices(mark);
  at('#test tbody').replaceChildren();
  const start = performance.now();
  const snapshot = await program.self_test((name, isGood, sentence) => {
    tested.parts += 1;
    if (!isGood) tested.failed.push(`${name}: ${sentence}`);
    row(name, isGood, sentence);
  });
  try {
    tested.snapshot = JSON.parse(snapshot).slabs.length;
  } catch (error) {
    tested.failed.push(`a snapshot: ${error}`);
  }
  // Errors of the device arrive with the next turn of the page.
  await new Promise(done => setTimeout(done, 50));
  tested.failed.push(...errors);
  tested.seconds = (performance.now() - start) / 1000;
  const { parts, failed, seconds } = tested;
  if (failed.length) complain(`${failed.length} of ${parts} parts failed.`);
  else say(`All ${parts} parts are good, in ${seconds.toFixed(1)} s.`);
  button.disabled = false;
  lapidary.destroyDevices = destroyDevices;
  lapidary.tested = tested;
}
