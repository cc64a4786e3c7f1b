// Search by meaning: a model's files, texts, and results.
import { alone, at, report, say } from './show.js';

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

// Runs an action as `alone` does, and hides its progress at the end.
const action = work => alone(section, () => work().finally(() => { part('progress').hidden = true; }));

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

async function load(program) {
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
  await take(program, found);
}

// Takes a model's files by their names, if they are complete, and replaces the old model.
async function take(program, files) {
  const missing = [CONFIG, TOKENIZER, WEIGHTS].filter(name => !files.has(name));
  if (missing.length) throw new Error(`There is no ${missing.join(' and no ')} among the files: give all of the model's folder at once.`);
  told('Opening a device …');
  const bytes = async name => files.has(name) ? new Uint8Array(await files.get(name).arrayBuffer()) : undefined;
  const search = await program.Search.open(...await Promise.all([CONFIG, SENTENCES, TOKENIZER, WEIGHTS].map(bytes)));
  // Keep the old model until here: invalid files must not remove it.
  forget();
  lapidary.search?.free();
  lapidary.search = search;
  part('index').disabled = false;
  told(`The model is here, ${megabytes(files.get(WEIGHTS).size)}. Now the texts can be indexed.`);
}

// Shows the results, and enables the query.
function forget() {
  part('asking').disabled = true;
  part('found').replaceChildren();
}

async function index() {
  const texts = part('texts').value.split('\n').map(text => text.trim()).filter(text => text);
  if (!texts.length) throw new Error('There are no texts: write some, one a line.');
  part('found').replaceChildren();
  told(`Indexing ${texts.length} texts …`);
  progress(0, texts.length);
  const { search } = lapidary;
  const budget = part('budget').value;
  const start = performance.now();
  const cut = await search.index(texts, part('precision').value, budget === '' ? undefined : Number(budget), done => {
    progress(done, texts.length);
    report(search, section);
  });
  const seconds = (performance.now() - start) / 1000;
  const long = cut ? ` Of ${cut} only the beginning is read: they are longer than the model takes.` : '';
  told(`${texts.length} texts in ${seconds.toFixed(1)} s. The weights take ${megabytes(search.weights_bytes())}; ` +
    `on the device there were ${megabytes(search.peak_bytes())} at most.${long}`);
  part('asking').disabled = false;
  report(search, section);
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
  part('load').onclick = () => action(() => load(program));
  part('files').onchange = event => action(async () => {
    const given = [...event.target.files].map(file => [file.name, file]);
    // Lets the user choose the same files again.
    event.target.value = '';
    await take(program, new Map(given));
  });
  part('index').onclick = () => action(index);
  part('ask').onsubmit = event => {
    event.preventDefault();
    action(ask);
  };
}
