// The page of a snapshot. It works with pointer and keys, its sums agree with the snapshot, and
// names that a program chose are only ever text. The folder has what the example `snapshot` wrote.
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { open } from './open.mjs';

const [folder] = process.argv.slice(2);
const page = await open();
const { holds } = page;

async function show(name) {
  const ms = await page.ready(`file://${folder}/${name}.html`);
  await page.evaluate(() => {
    globalThis.lapidaryReserved = moment => {
      const { at, bytes } = lapidary.model.reserved;
      let place = 0;
      while (place + 1 < at.length && at[place + 1] <= moment) place++;
      return bytes[place];
    };
  });
  for (const colorScheme of ['dark', 'light']) {
    await page.emulateMedia({ colorScheme });
    await page.settle();
    await page.screenshot({ path: `${folder}/${name}-${colorScheme}.png` });
  }
  return ms;
}

// The sums of events and blocks equal the statistics.
async function agrees() {
  await holds('the events end at the live bytes', () =>
    lapidary.model.total[lapidary.model.events.count] === lapidary.model.stats.live_bytes.now);
  await holds('and at the reserved bytes', () =>
    lapidaryReserved(lapidary.model.events.count) === lapidary.model.stats.reserved_bytes.now);
}

// Opens a file by the page's own dialog.
async function give(path) {
  await page.evaluate(() => { globalThis.before = lapidary.model; });
  await page.setInputFiles('#file', path);
  await page.waitForFunction(() => lapidary.model !== before);
}

// A real run: the replayed events end at the statistics, and an opened file gives the same page.
async function small() {
  await show('memory');
  await agrees();
  await holds('live bytes are never negative or above the reserved bytes', () =>
    lapidary.model.total.every((live, moment) => live >= 0 && live <= lapidaryReserved(moment)));
  await holds('every block has a place', () => {
    const { slab, count } = lapidary.model.stays;
    return slab.subarray(0, count).every(slab => slab !== 4294967295);
  });
  const told = () => page.evaluate(() => JSON.stringify(
    Object.values(lapidary.model.events).map(column =>
      [...new Float64Array(column.length ? column : [column])]
        .reduce((sum, value, i) => (sum * 31 + value + i) % 1e9, 7))));
  const embedded = await told();
  await give(`${folder}/memory.json`);
  assert.equal(await told(), embedded, 'the page and the file tell different events');
  await agrees();
  await groups();
  // The dialog of the browser would wait for a person.
  await page.evaluate(() => {
    HTMLInputElement.prototype.click = () => {};
    document.querySelector('#compare').click();
  });
  await give(`${folder}/memory.json`);
  await holds('an opened page compares itself with another file', () =>
    lapidary.isDifference && lapidary.docs.length === 2);
  page.quiet();
}

// Each grouping has all live bytes, and names are cut in the middle.
async function groups() {
  for (const grouping of ['beginning', 'kind', 'type', 'tag']) {
    await page.selectOption('#grouping', grouping);
    await page.settle();
    await holds(`the groups by ${grouping} have all live bytes`, () => {
      const { series, model } = lapidary;
      const values = new Float64Array(series.width);
      series.valuesAt(model.events.count, values);
      return values.reduce((a, b) => a + b) === model.stats.live_bytes.now;
    });
  }
  await holds('the ends of names are visible', () => [...document.querySelectorAll('.who .name')]
    .every(name => name.lastChild.scrollWidth <= name.clientWidth + 1));
}

// Two snapshots: both maps, and a table whose differences add up.
async function compared() {
  await show('compare');
  await holds('both maps are there', () =>
    lapidary.isDifference && document.querySelectorAll('.map canvas').length === 2);
  await holds('the differences add up to that of all live bytes', () => {
    const [before, after] = lapidary.docs.map(({ model }) => model);
    return after.total[after.events.count] - before.total[before.events.count]
      === after.stats.live_bytes.now - before.stats.live_bytes.now;
  });
  await holds('only holders that grew are coloured', () => {
    const growth = key => lapidary.differences().find(row => row.key === key)?.difference ?? 0;
    return lapidary.docs.every(({ grouped }) =>
      grouped.groups.every(group => group.slot === 12 || growth(group.key) > 0));
  });
  await page.evaluate(() => document.querySelector('#views button').click());
  await holds('the first can be looked at alone', () =>
    !lapidary.isDifference && lapidary.model === lapidary.docs[0].model);
  page.quiet();
}

// A million events and hostile names.
async function many() {
  const ms = await show('many');
  await agrees();
  await holds('no name became markup', () =>
    document.title === 'Memory snapshot' && !document.querySelector('img'));
  await pointer();
  await keys();
  await filter();
  const zoomed = await medians('zoom');
  const moved = await medians('move');
  page.quiet();
  const mib = (statSync(`${folder}/many.html`).size / 2 ** 20).toFixed(1);
  console.log(`1,000,000 events: ${mib} MiB, open in ${ms} ms, zoomed in ${zoomed}, ` +
    `another moment in ${moved}`);
}

async function corner(selector) {
  const { x, y } = await page.evaluate(selector => {
    const { x, y } = document.querySelector(selector).getBoundingClientRect();
    return { x, y };
  }, selector);
  return [x, y];
}

async function pointer() {
  let [left, top] = await corner('#timeline-overlay');
  await page.mouse.move(left + 700, top + 150);
  await page.settle();
  await holds('the timeline tells of what the pointer is at', () => {
    const tooltip = document.querySelector('#tooltip');
    return !tooltip.hidden && tooltip.textContent.includes('live');
  });
  await page.evaluate(() => { globalThis.wide = lapidary.range[1] - lapidary.range[0]; });
  await page.mouse.wheel(0, -400);
  await page.settle();
  await holds('the wheel zooms', () => lapidary.range[1] - lapidary.range[0] < 0.6 * wide);
  await page.evaluate(() => { globalThis.from = lapidary.range[0]; });
  await page.mouse.down();
  await page.mouse.move(left + 900, top + 150, { steps: 2 });
  await page.mouse.up();
  await page.settle();
  await holds('a drag moves the timeline', () => lapidary.range[0] < from);
  await page.mouse.click(left + 400, top + 100);
  await page.settle();
  await holds('a click chooses a moment', () =>
    lapidary.moment > 0 && lapidary.moment < lapidary.model.events.count);
  [left, top] = await corner('.map canvas');
  await page.mouse.move(left + 10, top + 32);
  await page.settle();
  await holds('the map tells of blocks', () =>
    document.querySelector('#tooltip').textContent.includes('slab, offset'));
  await page.mouse.click(left + 10, top + 32);
  await page.settle();
  await holds('a click on a block chooses its holder', () =>
    lapidary.selected !== null && document.querySelector('tr.chosen') !== null);
}

// Keys, and what is true after each.
const KEYS = [
  ['Escape', () => lapidary.selected === null],
  ['0', () => lapidary.range.join() === lapidary.domain().join()],
  ['+', () => {
    const [range, domain] = [lapidary.range, lapidary.domain()];
    return range[1] - range[0] < domain[1] - domain[0];
  }],
  ['ArrowRight', () => lapidary.range[0] > (lapidary.domain()[1] - lapidary.domain()[0]) / 6],
  ['p', () => lapidary.moment === lapidary.model.peak],
  ['+', () => {
    const { range, moment, model, axis } = lapidary;
    const at = axis === 'time' ? model.events.at[moment - 1] : moment;
    return at >= range[0] && at <= range[1];
  }],
  [',', () => lapidary.moment === lapidary.model.peak - 1],
  ['e', () => lapidary.moment === lapidary.model.events.count],
  ['t', () => lapidary.axis === 'events'],
  ['c', () => lapidary.colorBy === 'size'],
  ['c', () => lapidary.colorBy === 'state'],
  ['c', () => lapidary.colorBy === 'tag'],
  ['y', () => lapidary.isFitted],
  ['?', () => document.querySelector('#keys').open],
  ['Escape', () => !document.querySelector('#keys').open],
  ['/', () => document.activeElement.id === 'filter'],
];

async function keys() {
  await page.focus('#timeline-overlay');
  for (const [key, condition] of KEYS) {
    await page.keyboard.press(key);
    await page.settle();
    await holds(`the key \`${key}\` does what it says`, condition);
  }
}

// The filter has the focus. Its matches are always shown as text.
async function filter() {
  const rows = () => page.evaluate(() => Number(document.querySelector('#table').dataset.rows));
  assert((await rows()) > 40, 'there are many rows');
  await page.keyboard.insertText('layer 19');
  await page.settle();
  assert.equal(await rows(), 1, 'the filter leaves one row');
  for (const [name, shown] of [
    ['script', '</script><script>document.title'],
    ['onerror', '<img src=x onerror='],
    ['desrever', '\\u{1b}[31mred\\u{202e}desrever\\u{0}\\u{a}\\u{9}\\u{200b}'],
    ['long', 'long long long'],
  ]) {
    await page.fill('#filter', name);
    await page.settle();
    await holds(`the name with \`${name}\` is shown as text`, shown =>
      document.querySelector('#table tbody').textContent.includes(shown), shown);
  }
  await holds('no scope became markup', () => !document.querySelector('#table small b'));
}

// Medians of 31 repetitions: the time of the script, and the time until the result is visible,
// which is at least two frames.
function medians(what) {
  return page.evaluate(async what => {
    const [script, seen] = [[], []];
    for (let i = 0; i < 31; i++) {
      const start = performance.now();
      const [from, to] = lapidary.range;
      if (what === 'zoom') lapidary.zoomBy(i < 15 ? 0.85 : 1.2, (from + to) / 2);
      else lapidary.setMoment((i * 104729 * 137) % lapidary.model.events.count);
      await new Promise(done =>
        requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))));
      seen.push(performance.now() - start);
      script.push(lapidary.lastPaintMs);
    }
    const median = list => list.sort((a, b) => a - b)[15].toFixed(0);
    return `${median(script)} ms (seen after ${median(seen)})`;
  }, what);
}

await small();
await compared();
await many();
await page.close();
