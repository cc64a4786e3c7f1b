// Search by meaning: a model's files, texts, and what is found among them.
import { at, complain, report, say } from './show.js';

const FOLDER = 'model/';
const CONFIG = 'config.json';
const SENTENCES = 'sentence_bert_config.json';
const TOKENIZER = 'tokenizer.json';
const WEIGHTS = 'model.safetensors';
const HITS = 5;

const section = at('#search');
const part = name => at(`.${name}`, section);
const told = text => say(text, part('state'));
const megabytes = bytes => `${(bytes / 1e6).toFixed(1)} MB`;

// The files by their names, as the browser keeps them: a blob's bytes need not be in memory.
let files = null;
// What was chosen for `lapidary.search`, the one that is open.
let chosen = '';

// Has something done with the controls off, and says what went wrong.
async function alone(work) {
  const controls = at('fieldset', section);
  const focused = document.activeElement;
  controls.disabled = true;
  try {
    await work();
  } catch (error) {
    complain(error.message ?? String(error), part('state'));
  } finally {
    controls.disabled = false;
    part('progress').hidden = true;
    focused?.focus();
  }
}

function progress(done, all) {
  const bar = part('progress');
  bar.hidden = false;
  if (all > 0) [bar.max, bar.value] = [all, done];
  else bar.removeAttribute('value');
}

// A file beside the page, or null where there is none.
async function beside(name) {
  try {
    return await download(FOLDER + name);
  } catch (error) {
    throw new Error(`${name} cannot be had: ${error.message}. Try again, or give the files of a folder that has the model.`);
  }
}

async function download(address) {
  const response = await fetch(address);
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`the server says ${response.status}`);
  const all = Number(response.headers.get('Content-Length'));
  const chunks = [];
  let done = 0;
  for (const reader = response.body.getReader(); ;) {
    const chunk = await reader.read();
    if (chunk.done) return new Blob(chunks);
    chunks.push(chunk.value);
    done += chunk.value.length;
    progress(done, all);
  }
}

async function load() {
  told('Loading the model …');
  const found = new Map();
  for (const name of [CONFIG, SENTENCES, TOKENIZER, WEIGHTS]) {
    const file = await beside(name);
    if (!file && name === CONFIG) break;
    if (file) found.set(name, file);
  }
  if (!found.size) {
    throw new Error('There is no model beside this page: `cargo xtask fetch-model` gets one, and `cargo xtask web` started again ' +
      'brings it here. Or give the files of a folder that has one.');
  }
  take(found);
}

// Takes a model's files, if they are all there.
function take(found) {
  const missing = [CONFIG, TOKENIZER, WEIGHTS].filter(name => !found.has(name));
  if (missing.length) throw new Error(`There is no ${missing.join(' and no ')} among the files: give all of the model's folder at once.`);
  files = found;
  close();
  part('index').disabled = false;
  const bytes = [...found.values()].reduce((sum, file) => sum + file.size, 0);
  told(`The model is here, ${megabytes(bytes)}. Now the texts can be indexed.`);
}

function close() {
  part('asking').disabled = true;
  part('found').replaceChildren();
  lapidary.search?.free();
  lapidary.search = null;
}

// A device and a model as they were chosen; those that there are, where nothing else was.
async function opened(program) {
  const budget = part('budget').value;
  const precision = part('precision').value;
  const wanted = `${precision} ${budget}`;
  if (lapidary.search && chosen === wanted) return lapidary.search;
  close();
  const bytes = async name => files.has(name) ? new Uint8Array(await files.get(name).arrayBuffer()) : undefined;
  const [config, sentences, tokenizer, weights] = await Promise.all([CONFIG, SENTENCES, TOKENIZER, WEIGHTS].map(bytes));
  const limit = budget === '' ? undefined : Number(budget);
  lapidary.search = await program.Search.open(config, sentences, tokenizer, weights, precision, limit);
  chosen = wanted;
  return lapidary.search;
}

async function index(program) {
  const texts = part('texts').value.split('\n').map(text => text.trim()).filter(text => text);
  if (!texts.length) throw new Error('There are no texts: write some, one a line.');
  part('asking').disabled = true;
  part('found').replaceChildren();
  told('Opening a device …');
  progress(0, 0);
  const start = performance.now();
  const search = await opened(program);
  try {
    told(`Indexing ${texts.length} texts …`);
    const cut = await search.index(texts, done => {
      progress(done, texts.length);
      report(search, section);
    });
    const seconds = (performance.now() - start) / 1000;
    const [weights, peak] = search.extent();
    const long = cut ? ` Of ${cut} only the beginning is read: they are longer than the model takes.` : '';
    told(`${texts.length} texts in ${seconds.toFixed(1)} s. The weights take ${megabytes(weights)}; on the device there were ` +
      `${megabytes(peak)} at most.${long}`);
    part('asking').disabled = false;
    report(search, section);
  } catch (error) {
    // With another device next time, whatever became of this one.
    close();
    throw error;
  }
}

async function ask() {
  const start = performance.now();
  const { search } = lapidary;
  const answer = await search.query(part('query').value, HITS);
  const rows = answer.texts.map((text, i) => {
    const item = document.createElement('li');
    const score = document.createElement('span');
    score.textContent = answer.scores[i].toFixed(3);
    item.append(score, ` ${text}`);
    return item;
  });
  part('found').replaceChildren(...rows);
  const cut = answer.cut_from ? ` The query has ${answer.cut_from} tokens, more than the model reads: its end is not looked for.` : '';
  told(`Found in ${(performance.now() - start).toFixed(0)} ms.${cut}`);
  report(search, section);
}

// Shows the section.
export function prepare(program) {
  section.hidden = false;
  part('load').onclick = () => alone(load);
  part('files').onchange = event => alone(async () => {
    const given = [...event.target.files].map(file => [file.name, file]);
    // The same ones can be given again.
    event.target.value = '';
    take(new Map(given));
  });
  part('index').onclick = () => alone(() => index(program));
  part('ask').onsubmit = event => {
    event.preventDefault();
    alone(ask);
  };
}
