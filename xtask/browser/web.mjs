// The page of examples/web on its software adapter: its own test, the fluid, a language model, and
// the search with a real model. Then what it says without a model and without WebGPU.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { open, WEBGPU } from './open.mjs';

// The folder has the page, the model and PyTorch's vectors. Pictures go to the other.
const [folder, pictures] = process.argv.slice(2);
// The software adapter compiles some hundred kernels, on machines with two cores.
const PATIENCE = 240_000;
// Parts of the page's test: all cases, and six things that only a browser has.
const PARTS = 28;

// Functions for the test of the search, which the page's own script lacks.
const SEARCH = new URL('search.js', import.meta.url).pathname;

// As `cargo xtask web` serves it.
const serve = new URL('serve.py', import.meta.url).pathname;
const server = spawn('python3', [serve, folder, '0'], { stdio: ['ignore', 'pipe', 'ignore'] });
process.on('exit', () => server.kill());
const begun = await new Promise(done => createInterface(server.stdout).once('line', done));
const site = begun.match(/http:\/\/[\d.:]+/)[0];

const state = page => page.evaluate(() => document.querySelector('#state').textContent);

async function whole() {
  const page = await open({ args: WEBGPU, site });
  await page.ready(`${site}/?test`, PATIENCE);
  const tested = await page.evaluate(() => lapidary.tested);
  assert(tested, `the page did not run its test: ${await state(page)}`);
  const rows = await page.evaluate(() => [...document.querySelectorAll('#test tr')]
    .map(row => [...row.cells].map(cell => cell.textContent).join(' | ')));
  rows.forEach(row => console.log(`  ${row}`));
  assert.deepEqual(tested.failed, [], 'the page\'s test failed');
  assert(tested.parts >= PARTS, `the page tested ${tested.parts} parts`);
  assert(tested.snapshot >= 1, 'its snapshot has no slabs');
  await fluid(page);
  const cosine = await search(page);
  page.quiet();
  await page.close();
  return `${tested.parts} parts good in ${tested.seconds.toFixed(0)} s, and the fluid flows; ` +
    `the search finds what is meant, its vectors are PyTorch's to a cosine of ${cosine.toFixed(8)}`;
}

// The fluid flows, the pointer stirs it, it is visible, and the page reports its memory. A lost
// device is reported too, and the fluid flows again on another one.
async function fluid(page) {
  await page.ready(site, PATIENCE);
  await page.click('#fluid button');
  await page.waitForFunction(() => lapidary.fluid?.frames > 20);
  const { x, y } = await page.locator('#fluid canvas').boundingBox();
  for (let step = 0; step < 12; step++) {
    await page.mouse.move(x + 100 + 20 * step, y + 80 + 10 * step);
    await page.settle();
  }
  await page.click('#fluid button');
  await page.waitForFunction(() => !lapidary.fluid.isRunning && !lapidary.fluid.isBusy);
  await page.holds('there is dye of every colour', async () =>
    (await lapidary.fluid.simulation.dye()).every(sum => sum > 1 && sum < 1e9));
  await page.holds('the report names the holders of memory', () =>
    document.querySelector('#fluid pre').textContent.includes('fluid'));
  await page.holds('no error went uncaught', () => lapidary.errors.length === 0);
  await page.holds('the canvas shows many colours', () => {
    const canvas = document.querySelector('#fluid canvas');
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    return new Set(new Uint32Array(pixels.buffer)).size > 50;
  });
  await page.screenshot({ path: `${pictures}/web-fluid.png` });
  const before = await page.evaluate(() => lapidary.fluid.frames);
  await page.click('#fluid button');
  await page.waitForFunction(before => lapidary.fluid.frames > before, before);
  await page.evaluate(() => lapidary.destroyDevices());
  await page.waitForFunction(() =>
    document.querySelector('#state').textContent.includes('The fluid stopped'));
  await page.click('#fluid button');
  await page.waitForFunction(() => lapidary.fluid?.frames > 2);
}

// What the program for terminals says for the page's own beginning.
const SAID = readFileSync(`${folder}/language/said.txt`, 'utf8');
// In MiB. The weights have 0.7, and a step needs as much besides.
const NARROW = 1;
// Controls of the chat with values that cannot be, and what it then says.
const IMPOSSIBLE = [
  ['question', 'word '.repeat(10000), 'shorten it, or open the model with a longer context'],
  ['budget', '0', 'a budget is 0.01 to'],
  ['budget', '0.1', 'a command with operands and results'],
];
// Addresses without a model, and what the page then says.
const WITHOUT_MODEL = [
  ['language/short.safetensors', 'cut off'],
  ['golden/', 'There is no config.json and no tokenizer.json beside'],
  ['language/none.safetensors', 'is the address right'],
];

// The language model says what it says natively, also while its weights are dropped and requested
// again, after a server failed, and on another device.
async function chat() {
  const page = await open({ args: WEBGPU, site });
  const part = name => page.locator(`#chat .${name}`);
  const press = async (button, says) => {
    await page.click(`#chat ${button}`);
    await page.waitForFunction(() => !document.querySelector('#chat fieldset').disabled, null,
      { timeout: PATIENCE, polling: 200 });
    const said = await part('state').textContent();
    assert(said.includes(says), `the chat should say \`${says}\`, but says: ${said}`);
    console.log(`  chat | ${said}`);
    return said;
  };
  const speaks = async () => {
    const said = await press('.ask button', '64 tokens, ');
    assert.equal(await part('answer').textContent(), SAID, 'it says something else than natively');
    return Number(said.match(/(\d+) requests/)[1]);
  };
  // While `handle` answers the requests for weights.
  const meanwhile = async (handle, act) => {
    await page.route('**/*.safetensors', handle);
    await act();
    await page.unroute('**/*.safetensors');
  };
  await page.ready(site, PATIENCE);
  await press('.load', 'The model is open');
  await part('temperature').fill('0');
  // Pieces come while it speaks.
  await page.evaluate(() => new MutationObserver(() => {
    globalThis.heard = (globalThis.heard ?? 0) + 1;
  }).observe(document.querySelector('#chat .answer'), { childList: true }));
  const weights = await speaks();
  await page.holds('the answer came in pieces', () => heard > 20);
  // Rows of the embedding come one by one, until they come to as much as all of it.
  await speaks();
  assert.equal(await speaks(), 0, 'weights that were there were requested again');
  await page.screenshot({ path: `${pictures}/web-chat.png`, fullPage: true });
  await part('budget').fill(String(NARROW));
  const again = await speaks();
  assert(again > 0, 'no weight was dropped and requested again');
  await page.holds('the budget was kept', budget =>
    lapidary.chat.peak_bytes() <= budget * 2 ** 20, NARROW);

  // A server that fails for a moment is asked again. If it fails for longer, or knows no ranges, the
  // page says so, and the model goes on afterwards.
  const once = [route => route.fulfill({ status: 503 }), route => route.abort()];
  await meanwhile(route => (once.pop() ?? (route => route.continue()))(route), speaks);
  assert.equal(once.length, 0, 'nothing was requested while the server failed');
  await meanwhile(route => route.fulfill({ status: 503 }), () =>
    press('.ask button', 'the server fails (status 503)'));
  await speaks();
  await meanwhile(route => route.continue({ headers: { ...route.request().headers(), range: '' } }),
    () => press('.ask button', 'the server sends whole files'));
  await speaks();

  for (const [name, value, says] of IMPOSSIBLE) {
    const before = await part(name).inputValue();
    await part(name).fill(value);
    await press('.ask button', says);
    await part(name).fill(before);
  }
  writeFileSync(`${folder}/language/short.safetensors`,
    readFileSync(`${folder}/language/model.safetensors`).subarray(0, -1));
  for (const [address, says] of WITHOUT_MODEL) {
    await part('address').fill(address);
    await press('.load', says);
  }
  await speaks();
  await page.evaluate(() => lapidary.destroyDevices());
  await part('budget').fill('');
  await speaks();
  await page.holds('no error went uncaught', () => lapidary.errors.length === 0);
  // The browser reports files that are missing, and failures of the server, on its console too.
  page.quiet('Failed to load resource');
  await page.close();
  return `a language model says what it says natively, with ${weights} requests for weights, ` +
    `and in ${NARROW} MiB with ${again}`;
}

// The number of texts with PyTorch's vectors, all but the four longest; and fewer for fast tests.
const [GOLDEN, SHORT] = [21, 3];
// About half of the weights, in MiB.
const BUDGET = 43;
// Queries, and the beginning of the text with the same meaning, of the page's 40.
const QUERIES = [
  ['a pet takes a nap', 'The cat slept'],
  ['RAM usage grows without end', 'The program keeps asking'],
  ['staying calm on stage', 'Breathe slowly'],
];
// A file that is replaced on the page, and what the page then says.
const REFUSED = [
  ['model.safetensors', file => file.slice(0, 1e6), 'cut off'],
  ['model.safetensors', () => null, 'There is no model.safetensors'],
  ['tokenizer.json', () => new Blob(['{}']), 'tokenizer.json: no tokenizer'],
  ['config.json', () => new Blob(['']), 'config.json: no description'],
];

// The controls of the page's search.
function controls(page) {
  const part = name => page.locator(`#search .${name}`);
  // Waits until the page has finished. Frequent looks would take time from the cores that compute.
  const settled = async () => {
    await page.waitForFunction(() => !document.querySelector('#search fieldset').disabled, null,
      { timeout: PATIENCE, polling: 500 });
    return part('state').textContent();
  };
  const press = async (button, start) => {
    await page.evaluate(button => searching.part(button).click(), button);
    const said = await settled();
    assert(said.startsWith(start), `the search should say \`${start}\`, but says: ${said}`);
    return said;
  };
  const set = (name, value) =>
    page.evaluate(([name, value]) => { searching.part(name).value = value; }, [name, value]);
  // Limits the number of texts: fewer test the same, and the software adapter is slow.
  const only = count => page.evaluate(count => {
    const texts = searching.part('texts');
    texts.value = texts.value.split('\n', count).join('\n');
  }, count);
  const index = async how => {
    const count = await page.evaluate(() =>
      searching.part('texts').value.trim().split('\n').length);
    console.log(`  search | ${how} | ${await press('index', `${count} texts in`)}`);
  };
  const finds = async ([query, first]) => {
    await set('query', query);
    await press('asking button', 'Found in');
    const found = await part('found li').first().textContent();
    assert(found.includes(first), `\`${query}\` finds first: ${found}`);
  };
  // The least cosine between the vectors of some texts and PyTorch's.
  const cosine = async (count, least) => {
    const found = await page.evaluate(async count => {
      searching.last = await searching.vectors(count);
      return searching.cosine(searching.last, count);
    }, count);
    assert(found >= least, `the cosine with PyTorch's vectors is ${found}, below ${least}`);
    return found;
  };
  return { settled, press, set, only, index, finds, cosine };
}

async function search(page) {
  await page.setViewportSize({ width: 960, height: 1280 });
  await page.addScriptTag({ path: SEARCH });
  const { settled, press, set, only, index, finds, cosine } = controls(page);
  await press('load', 'The model is here');
  // With all weights on the device.
  await index('f32');
  for (const query of QUERIES) await finds(query);
  await page.evaluate(() => searching.section.scrollIntoView());
  await page.screenshot({ path: `${pictures}/web-search.png` });
  const found = await cosine(GOLDEN, 0.99999);
  await page.evaluate(() => { searching.free = searching.last; });

  // Impossible requests give sentences. One MiB is less than a matrix of one layer.
  await page.holds('an empty query is refused', async () => {
    const said = await lapidary.search.query(' ', 5).catch(error => error.message);
    return said.includes('type some words');
  });
  await page.holds('a long query is cut', async () =>
    (await lapidary.search.query('word '.repeat(10000), 5)).cut_from === 10002);
  await set('budget', 1);
  const said = await press('index', 'add for the tensor made at ');
  assert(said.includes('a command with operands and results'), said);
  await set('budget', -1);
  await press('index', 'a budget is 1 to');

  // With memory for about half of the weights, the results are the same.
  await only(SHORT);
  await set('budget', BUDGET);
  await index(`f32 in ${BUDGET} MiB`);
  await finds(QUERIES[0]);
  await page.holds('the vectors are the same in a small budget', async count =>
    (await searching.vectors(count))
      .every((number, at) => Math.abs(number - searching.free[at]) < 1e-6), SHORT);
  await page.holds('the budget was kept', budget =>
    lapidary.search.peak_bytes() <= budget * 2 ** 20, BUDGET);
  await page.holds('the budget is about half of the weights', budget =>
    lapidary.search.weights_bytes() > 1.9 * budget * 2 ** 20, BUDGET);
  await set('budget', '');

  for (const [precision, least] of [['f16', 0.9999], ['int8', 0.995]]) {
    await set('precision', precision);
    await index(precision);
    await finds(QUERIES[0]);
    await cosine(SHORT, least);
  }

  // A lost device and invalid files are reported. The search works again with the right files, and
  // after a loss before the first index.
  await page.evaluate(() => lapidary.destroyDevices());
  await press('asking button', 'the device is lost');
  for (const [name, change, says] of REFUSED) {
    await page.evaluate(`searching.give('${name}', ${change})`);
    const said = await settled();
    assert(said.includes(says), `after an invalid ${name} the search says: ${said}`);
    await page.holds('the previous model is still there', () =>
      !searching.part('index').disabled && searching.part('state').classList.contains('bad'));
  }
  await page.evaluate(() => searching.give());
  const given = await settled();
  assert(given.startsWith('The model is here'), `after the model's files it says: ${given}`);
  await page.evaluate(() => lapidary.destroyDevices());
  await set('precision', 'f32');
  await only(2);
  await index('f32, on another device');
  await finds(QUERIES[0]);
  await page.holds('no error went uncaught', () => lapidary.errors.length === 0);
  return found;
}

// Without a model beside it, the page says how to get one.
async function withoutModel() {
  const page = await open({ args: WEBGPU, site });
  await page.route('**/model/**', route => route.fulfill({ status: 404 }));
  await page.ready(site, PATIENCE);
  await page.addScriptTag({ path: SEARCH });
  await controls(page).press('load', 'There is no model beside this page');
  // The browser reports the missing file on its console too.
  page.quiet('status of 404');
  await page.close();
}

// In a browser without WebGPU the page says so and loads nothing.
async function withoutWebgpu() {
  const page = await open({ site });
  await page.ready(`${site}/?test`, PATIENCE);
  const said = await state(page);
  assert(said.startsWith('This browser has no WebGPU'), `without WebGPU the page says: ${said}`);
  // The browser reports it on its console too.
  page.quiet('No available adapters.');
  await page.close();
}

const spoken = await chat();
const found = await whole();
await withoutModel();
await withoutWebgpu();
console.log(`${found}; ${spoken}`);
process.exit();
