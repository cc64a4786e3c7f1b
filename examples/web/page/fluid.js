// The fluid on its canvas.
import { at, complain, report, say } from './show.js';

// The fluid: a step for each frame of the browser, with the pointer's movement since the last one.
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
    // The page stirs until the user does.
    const turn = n / 40;
    const [x, y, dx, dy] = hand ? [hand.x, hand.y, hand.dx, hand.dy]
      : [0.5 + 0.3 * Math.cos(turn), 0.5 + 0.3 * Math.sin(1.7 * turn), -0.007 * Math.sin(turn), 0.012 * Math.cos(1.7 * turn)];
    if (hand) [hand.dx, hand.dy] = [0, 0];
    state.isBusy = true;
    try {
      const pixels = await simulation.frame(x, y, dx, dy, new Float32Array(colours[(n >> 7) % colours.length]));
      const clamped = new Uint8ClampedArray(pixels.buffer, pixels.byteOffset, pixels.length);
      paper.putImageData(new ImageData(clamped, canvas.width, canvas.height), 0, 0);
      if (n % 20 === 0) report(simulation, at('#fluid'));
    } catch (error) {
      state.isRunning = false;
      complain(`The fluid stopped: ${error.message ?? error}`);
      // Restart on a new device: this one may be lost.
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

// Starts a fluid and drops the one before.
export async function begin(program) {
  const button = at('#fluid button');
  button.disabled = true;
  try {
    lapidary.fluid?.simulation.free();
    lapidary.fluid = null;
    lapidary.fluid = await flow(program);
    say('Ready.');
  } catch (error) {
    complain(`The fluid cannot start: ${error.message ?? error}`);
  } finally {
    button.disabled = false;
  }
}
