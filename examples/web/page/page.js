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

function destroyDevices(from = 0) {
  for (const device of devices.splice(from)) device.destroy();
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
  errors.length = 0;
  // Those that were opened before are somebody else's.
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
  say(failed.length ? `${failed.length} of ${parts} parts failed.` : `All ${parts} parts are good, in ${seconds.toFixed(1)} s.`);
  at('#state').className = failed.length ? 'bad' : '';
  button.disabled = false;
  lapidary.destroyDevices = destroyDevices;
  lapidary.tested = tested;
}

// The fluid: a frame for each of the browser's, with what the pointer did since the last one.
async function flow(program) {
  const canvas = at('#fluid canvas');
  const button = at('#fluid button');
  const simulation = await program.Simulation.open();
  [canvas.width, canvas.height] = simulation.size();
  const paper = canvas.getContext('2d');
  const state = { simulation, frames: 0, isRunning: true, isBusy: false };
  const colours = [[3, 1, 0.4], [0.3, 1.6, 3], [1, 3, 0.6], [3, 0.6, 2]];
  let hand = null;
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  canvas.onpointermove = event => {
    const [x, y] = place(event);
    const from = hand ?? { x, y, dx: 0, dy: 0 };
    hand = { x, y, dx: from.dx + x - from.x, dy: from.dy + y - from.y };
  };
  canvas.onpointerleave = () => { hand = null; };
  const step = async () => {
    if (!state.isRunning || state.isBusy) return;
    const n = state.frames++;
    // Until somebody stirs, it is stirred.
    const turn = n / 40;
    const [x, y, dx, dy] = hand ? [hand.x, hand.y, hand.dx, hand.dy]
      : [0.5 + 0.3 * Math.cos(turn), 0.5 + 0.3 * Math.sin(1.7 * turn), -0.007 * Math.sin(turn), 0.012 * Math.cos(1.7 * turn)];
    if (hand) [hand.dx, hand.dy] = [0, 0];
    state.isBusy = true;
    try {
      const pixels = await simulation.frame(x, y, dx, dy, new Float32Array(colours[(n >> 7) % colours.length]));
      const clamped = new Uint8ClampedArray(pixels.buffer, pixels.byteOffset, pixels.length);
      paper.putImageData(new ImageData(clamped, canvas.width, canvas.height), 0, 0);
      if (n % 20 === 0) report(simulation);
    } catch (error) {
      state.isRunning = false;
      complain(`The fluid stopped: ${error.message ?? error}`);
      // On a new device: this one may be gone.
      button.textContent = 'Start again';
      button.onclick = () => begin(program);
      return;
    } finally {
      state.isBusy = false;
    }
    if (state.isRunning) requestAnimationFrame(step);
  };
  button.onclick = () => {
    state.isRunning = !state.isRunning;
    button.textContent = state.isRunning ? 'Stop' : 'Go on';
    if (state.isRunning && !state.isBusy) requestAnimationFrame(step);
  };
  button.textContent = 'Stop';
  step();
  return state;
}

// Starts a fluid, whatever became of the one before.
async function begin(program) {
  const button = at('#fluid button');
  button.disabled = true;
  try {
    lapidary.fluid?.simulation.free();
    lapidary.fluid = null;
    lapidary.fluid = await flow(program);
    say('Ready.');
    at('#state').className = '';
  } catch (error) {
    complain(`The fluid cannot start: ${error.message ?? error}`);
  } finally {
    button.disabled = false;
  }
}

function report(simulation) {
  const [live, reserved, all] = simulation.bytes();
  at('#fluid pre').textContent = simulation.memory();
  at('.bar .live').style.width = `${100 * live / all}%`;
  at('.bar .reserved').style.width = `${100 * reserved / all}%`;
}

async function main() {
  globalThis.lapidary = { errors, destroyDevices, tested: null, fluid: null };
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
  // A program that looks at the test has it alone on the device.
  if (location.search === '?test') return test(program);
  at('#fluid').hidden = false;
  at('#fluid button').onclick = () => begin(program);
}

// A panic of the program's is one of these: no promise hears of it.
addEventListener('error', event => complain(event.message));
addEventListener('unhandledrejection', event => complain(String(event.reason?.message ?? event.reason)));

const start = performance.now();
main()
  .catch(error => complain(`It stopped: ${error.message ?? error}`))
  .finally(() => { document.documentElement.dataset.readyMs = performance.now() - start; });
