// The pictures of the documentation: the page of the example `snapshot`, light and dark.
//
// Times and bytes of the run differ each time, and fonts differ between machines. So the words of
// the page are kept beside the picture, without numbers. `--check` compares these.
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { open } from './open.mjs';

const [folder, docs, check] = process.argv.slice(2);
const PICTURES = { light: `${docs}/snapshot-viewer.png`, dark: `${docs}/snapshot-viewer-dark.png` };
const WORDS = `${docs}/snapshot-viewer.txt`;
// Words of figures that are there only if the run dropped tensors, or waited for memory.
const OF_SOME_RUNS = new RegExp('^(dropped|copies or recipes stay|waited for memory|' +
  '((device|host|store|disk) #(, )?)+)$');

// Every text that a reader of the picture sees, once, with `#` for numbers and `.` for letters
// beyond ASCII. The lanes are drawn, and tags are the example's.
function words() {
  const seen = 'h1, h2, .figure > span, button, option, th, label';
  const texts = [...document.querySelectorAll(seen)]
    .filter(element => !element.closest('[hidden], dialog'))
    .flatMap(element => [...element.childNodes].filter(node => node.nodeType === 3))
    .map(node => node.textContent);
  const number = /[+-]?\d[\d,.]*(?: (?:[KMG]iB|B|%|m?s)(?![a-z]))?/g;
  const all = [...texts, ...lapidary.model.lanes.map(lane => lane.name)]
    .map(text => text.replace(number, '#').replace(/[^ -~]/g, '.').trim());
  return [...new Set(all)].filter(Boolean);
}

const page = await open();
await page.ready(`file://${folder}/memory.html`);
await page.settle();
const found = await page.evaluate(words);
if (check) {
  for (const path of Object.values(PICTURES)) {
    const png = readFileSync(path);
    const size = [png.toString('latin1', 1, 4), png.readUInt32BE(16), png.readUInt32BE(20)];
    assert.deepEqual(size, ['PNG', 1440, 1060], path);
  }
  const known = readFileSync(WORDS, 'utf8').trimEnd().split('\n');
  const without = (words, others) =>
    words.filter(word => !others.includes(word) && !OF_SOME_RUNS.test(word));
  assert.deepEqual([...without(found, known), ...without(known, found)], [],
    'the pictures are of another version, which differs in these words: run ' +
    '`cargo xtask pictures`, and look at them');
  console.log(`${known.length} words as in the picture`);
} else {
  for (const [colorScheme, path] of Object.entries(PICTURES)) {
    await page.emulateMedia({ colorScheme });
    await page.settle();
    await page.screenshot({ path });
  }
  writeFileSync(WORDS, `${found.join('\n')}\n`);
}
await page.close();
