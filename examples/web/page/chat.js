// A language model, whose weights come by range requests whenever the program asks for them.
import { alone, at, report, say } from './show.js';

const WEIGHTS = 'model.safetensors';
const BESIDE = ['config.json', 'generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'];
// Milliseconds before a request that failed is made again.
const PAUSES = [250, 1000];

const section = at('#chat');
const part = name => at(`.${name}`, section);
const told = text => say(text, part('state'));
const megabytes = bytes => `${(bytes / 1e6).toFixed(2)} MB`;
const pause = ms => new Promise(done => setTimeout(done, ms));

// Answers that had the bytes which were asked for.
let requests = 0;

// What a server answers. A server that is busy or cannot be reached is asked again.
async function request(url, headers = {}) {
  for (let tries = 0; ; tries++) {
    const response = await fetch(url, { headers }).catch(error => error);
    const passes = response instanceof Error || response.status === 429 || response.status >= 500;
    if (!passes) return response;
    await response.body?.cancel();
    if (tries === PAUSES.length) {
      throw new Error(`the server fails (${response.message ?? `status ${response.status}`}): look whether it runs, then try again`);
    }
    await pause(PAUSES[tries]);
  }
}

// The answer with so many bytes of a file, from an offset on.
async function range(url, from, length) {
  const response = await request(url, { Range: `bytes=${from}-${from + length - 1}` });
  if (response.status === 206) {
    requests += 1;
    return response;
  }
  await response.body?.cancel();
  throw new Error(response.status === 200
    ? 'the server sends whole files (status 200): take one that answers range requests with status 206, such as that of `cargo xtask web`'
    : `the server has no such bytes (status ${response.status}): is the address right, and the file the same?`);
}

// The files beside the weights by their names. A GGUF file has all of them within.
async function beside(weights) {
  const files = new Map();
  if (weights.pathname.endsWith('.gguf')) return files;
  for (const name of BESIDE) {
    const response = await request(new URL(name, weights));
    if (response.ok) files.set(name, new Uint8Array(await response.arrayBuffer()));
    else await response.body?.cancel();
  }
  const missing = ['config.json', 'tokenizer.json'].filter(name => !files.has(name));
  if (missing.length) throw new Error(`There is no ${missing.join(' and no ')} beside ${weights}: give the address of a folder with a model, or of a GGUF file.`);
  return files;
}

async function load(program) {
  told('Opening the model …');
  const url = new URL(part('address').value, document.baseURI);
  const weights = url.pathname.endsWith('/') ? new URL(WEIGHTS, url) : url;
  const files = await beside(weights);
  const first = await range(weights, 0, 1);
  const length = Number(first.headers.get('Content-Range')?.split('/')[1]);
  if (!length) throw new Error(`The server does not say how long ${weights} is: its answers need a Content-Range.`);
  const bytes = async (from, length) => new Uint8Array(await (await range(weights, from, length)).arrayBuffer());
  const chat = await program.Chat.open(weights.href, length, bytes, files);
  // Keep the old model until here: an invalid one must not remove it.
  lapidary.chat?.free();
  lapidary.chat = chat;
  part('asking').disabled = false;
  told(`The model is open: ${megabytes(length)}, of which only the header was read.`);
}

async function ask() {
  const { chat } = lapidary;
  const [question, tokens, temperature, budget] = ['question', 'tokens', 'temperature', 'budget'].map(name => part(name).value);
  const seed = Math.floor(Math.random() * 2 ** 32);
  const [before, start] = [requests, performance.now()];
  const line = (said, end) => {
    const rate = 1000 * said / (performance.now() - start);
    const [, , now] = chat.bytes();
    told(`${said} tokens, ${rate.toFixed(1)} a second; ${megabytes(now)} on the device, ${megabytes(chat.peak_bytes())} at most; ` +
      `${requests - before} requests for weights${end}`);
  };
  part('answer').textContent = '';
  told('Reading the beginning …');
  const hear = (piece, said) => {
    part('answer').append(piece);
    line(said, ' …');
  };
  const said = await chat.ask(question, Number(tokens), Number(temperature), seed, budget === '' ? undefined : Number(budget), hear);
  line(said, '.');
  report(chat, section);
}

// Shows the section.
export function prepare(program) {
  section.hidden = false;
  part('load').onclick = () => alone(section, () => load(program));
  part('ask').onsubmit = event => {
    event.preventDefault();
    alone(section, ask);
  };
}
