// The page: loads the program, runs its test, and shows what it says.
'use strict';

const at = selector => document.querySelector(selector);
const errors = [];
const devices = [];

// What nobody caught is counted: the library's own errors are all caught, so there is none.
function watch() {
  const open = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    const device = await open.apply(this, args);
    device.addEventListener('uncapturederror', event => {
      errors.push(event.error.message);
      complain(`An error that nobody caught: ${event.error.message}`);
    });
    devices.push(device);
    return device;
  };
}

function say(text) { at('#state').textContent = text; }

function complain(text) {
  say(text);
  at('#state').className = 'bad';
}

function destroyDevices() {
  for (const device of devices.splice(0)) device.destroy();
}

function row(name, isGood, sentence) {
  const tr = at('#test tbody').insertRow();
  tr.className = isGood ? 'good' : 'bad';
  for (const text of [name, isGood ? 'good' : 'BAD', sentence]) tr.insertCell().textContent = text;
}

// Runs the test. What comes of it is in `lapidary.tested` too, for programs.
async function test(program) {
  const tested = { parts: 0, failed: [], snapshot: 0 };
  const button = at('#test button');
  button.disabled = true;
  at('#test tbody').replaceChildren();
  const start = performance.now();
  const snapshot = await program.self_test((name, isGood, sentence) => {
    tested.parts += 1;
    if (!isGood) tested.failed.push(`${name}: ${sentence}`);
    row(name, isGood, sentence);
  });
  try {
    tested.snapshot = JSON.parse(snapshot).blocks.length;
  } catch (error) {
    tested.failed.push(`a snapshot: ${error}`);
  }
  // Errors of the device arrive with the next turn of the page.
  await new Promise(done => setTimeout(done, 50));
  tested.failed.push(...errors);
  tested.seconds = (performance.now() - start) / 1000;
  const { parts, failed, seconds } = tested;
  say(failed.length ? `${failed.length} of ${parts} parts failed.` : `All ${parts} parts are good, in ${seconds.toFixed(1)} s.`);
  at('#state').className = failed.length ? 'bad' : '';
  button.disabled = false;
  globalThis.lapidary.tested = tested;
}

async function main() {
  globalThis.lapidary = { errors, destroyDevices, tested: null };
  if (!navigator.gpu || !await navigator.gpu.requestAdapter()) {
    complain('This browser has no WebGPU, or has it turned off. Chrome and Edge have it from version 113, ' +
      'Safari from 26, Firefox from 141 on Windows; on Linux it may have to be turned on.');
    return;
  }
  watch();
  const program = await import('./web.js');
  await program.default({ module_or_path: 'web_bg.wasm' });
  say('Ready.');
  at('#test').hidden = false;
  at('#test button').onclick = () => test(program);
  if (location.search === '?test') await test(program);
}

const start = performance.now();
main()
  .catch(error => complain(`It stopped: ${error.message ?? error}`))
  .finally(() => { document.documentElement.dataset.readyMs = performance.now() - start; });
