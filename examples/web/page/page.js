// The page: loads the program, and starts its parts.
import { prepare as prepareChat } from './chat.js';
import { destroyDevices, errors, watch } from './devices.js';
import { begin } from './fluid.js';
import { prepare } from './search.js';
import { at, complain, say } from './show.js';
import { test } from './test.js';

async function main() {
  globalThis.lapidary = { errors, destroyDevices, tested: null, fluid: null, search: null, chat: null };
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
  // A program that runs the test has the device for itself.
  if (location.search === '?test') return test(program);
  at('#fluid').hidden = false;
  at('#fluid button').onclick = () => begin(program);
  prepare(program);
  prepareChat(program);
}

// A panic of the program arrives here: it rejects no promise.
addEventListener('error', event => complain(event.message));
addEventListener('unhandledrejection', event => complain(String(event.reason?.message ?? event.reason)));

const start = performance.now();
main()
  .catch(error => complain(`It stopped: ${error.message ?? error}`))
  .finally(() => { document.documentElement.dataset.readyMs = performance.now() - start; });
