// The holders: groups of tags, and their bytes at any moment.

// The number of the greatest groups with their own colour. The others share a grey.
const COLORED = 12;

const GROUPINGS = {
  tag: "tag",
  scope: "scope",
  share: "share",
  site: "call site",
  name: "name",
};

const shortSite = tag => tag.file.split(/[\\/]/).pop() + ":" + tag.line;
const siteText = tag => tag.file + ":" + tag.line + (tag.column ? ":" + tag.column : "");

// A group's name, its key, and further details.
function nameOf(tag, grouping) {
  if (!tag) return { key: "", title: "(all others)", detail: "" };
  switch (grouping) {
    case "scope": return { key: tag.scope, title: tag.scope || "(no scope)", detail: "" };
    case "share": return { key: tag.share, title: tag.share || "(no share)", detail: "" };
    case "name": return { key: tag.name, title: tag.name || "(no name)", detail: "" };
    case "site": return { key: siteText(tag), title: siteText(tag), detail: "" };
    default: return {
      key: JSON.stringify([siteText(tag), tag.scope, tag.name, tag.share]),
      title: tag.name || shortSite(tag),
      detail: [tag.share && `[${tag.share}]`, tag.scope, tag.name && shortSite(tag)].filter(Boolean).join("   "),
      whole: [tag.share && `[${tag.share}]`, tag.name, tag.scope, siteText(tag)].filter(Boolean).join("   "),
    };
  }
}

// The groups of a model's tags. `of[tag]` is a group's number. The last group has the storages that
// are older than the history and have no known tag.
function groupsOf(model, grouping) {
  const groups = [];
  const byKey = new Map();
  const of = new Uint32Array(model.tags.length + 1);
  const enter = name => {
    const key = grouping + ":" + name.key;
    let group = byKey.get(key);
    if (!group) {
      group = { ...name, key, number: groups.length, slot: COLORED, peak: 0, title: printable(name.title), detail: printable(name.detail), whole: printable(name.whole || name.title, 400) };
      byKey.set(key, group);
      groups.push(group);
    }
    return group.number;
  };
  model.tags.forEach((tag, number) => { of[number] = enter(nameOf(tag, grouping)); });
  of[model.tags.length] = enter({ key: "?", title: "(older than the history)", detail: "" });
  findPeaks(model, groups, of);
  return { groups, of, byKey };
}

const groupAt = (grouped, tag) => grouped.of[Math.min(tag, grouped.of.length - 1)];

function findPeaks(model, groups, of) {
  const { stays, ended, began, events } = model;
  const unknown = of.length - 1;
  const now = new Float64Array(groups.length), peak = new Float64Array(groups.length);
  const take = (stay, sign) => {
    const group = of[Math.min(stays.tag[stay], unknown)];
    now[group] += sign * stays.bytes[stay];
    if (now[group] > peak[group]) peak[group] = now[group];
  };
  for (let stay = 0; stay < stays.count; stay++) if (stays.from[stay] === 0) take(stay, 1);
  for (let i = 0; i < events.count; i++) {
    if (ended[i] >= 0) take(ended[i], -1);
    if (began[i] >= 0) take(began[i], 1);
    if (events.kind[i] === REOPENED) now.fill(0);
  }
  groups.forEach((group, number) => { group.peak = peak[number]; });
}

// Gives the greatest groups of all models a slot for a colour, the same slot in each model.
function giveSlots(groupings) {
  const peaks = new Map();
  for (const { groups } of groupings) {
    for (const { key, peak } of groups) peaks.set(key, Math.max(peaks.get(key) ?? 0, peak));
  }
  const greatest = [...peaks].filter(([, peak]) => peak > 0).sort((a, b) => b[1] - a[1]).slice(0, COLORED);
  const slots = new Map(greatest.map(([key], slot) => [key, slot]));
  for (const { groups } of groupings) {
    for (const group of groups) group.slot = slots.get(group.key) ?? COLORED;
  }
}

// Bytes by slot, kept for every 64th moment. So any moment is at most 63 events after a kept one. A
// chosen group without a colour gets an extra slot.
const KEPT = 64;

function seriesOf(model, grouped, alone = null) {
  const width = COLORED + (alone ? 2 : 1);
  const { stays, ended, began, events } = model;
  const slotOf = Uint8Array.from(grouped.of, number => {
    const group = grouped.groups[number];
    return group === alone && group.slot === COLORED ? COLORED + 1 : group.slot;
  });
  const unknown = slotOf.length - 1;
  const slot = new Uint8Array(stays.count);
  for (let stay = 0; stay < stays.count; stay++) slot[stay] = slotOf[Math.min(stays.tag[stay], unknown)];
  const kept = new Float64Array((Math.floor(events.count / KEPT) + 1) * width);
  const now = new Float64Array(width);
  for (let stay = 0; stay < stays.count; stay++) if (stays.from[stay] === 0) now[slot[stay]] += stays.bytes[stay];
  for (let i = 0; i <= events.count; i++) {
    if (i % KEPT === 0) kept.set(now, (i / KEPT) * width);
    if (i < events.count) step(now, i);
  }
  function step(values, i) {
    if (ended[i] >= 0) values[slot[ended[i]]] -= stays.bytes[ended[i]];
    if (began[i] >= 0) values[slot[began[i]]] += stays.bytes[began[i]];
    if (events.kind[i] === REOPENED) values.fill(0);
  }
  const valuesAt = (moment, values) => {
    const block = Math.floor(moment / KEPT);
    values.set(kept.subarray(block * width, (block + 1) * width));
    for (let i = block * KEPT; i < moment; i++) step(values, i);
  };
  return { width, valuesAt, order: steadiestFirst(kept, width) };
}

// The order of the stack: steady slots at the bottom, changing ones above, the grey slot on top.
function steadiestFirst(kept, width) {
  const sum = new Float64Array(width), most = new Float64Array(width);
  kept.forEach((bytes, place) => {
    sum[place % width] += bytes;
    most[place % width] = Math.max(most[place % width], bytes);
  });
  const steadiness = slot => (slot === COLORED ? -1 : most[slot] ? sum[slot] / most[slot] : 0);
  return Array.from({ length: width }, (_, slot) => slot).sort((a, b) => steadiness(b) - steadiness(a));
}

// The bytes and storages of each group at a moment, and the bytes that were saved for backward when
// the snapshot was taken. Events do not tell when a storage was saved.
function heldAt(model, grouped, moment) {
  const bytes = new Float64Array(grouped.groups.length), storages = new Uint32Array(grouped.groups.length), saved = new Float64Array(grouped.groups.length);
  const isLast = moment === model.events.count;
  for (const stay of liveAt(model, moment)) {
    const group = groupAt(grouped, model.stays.tag[stay]);
    bytes[group] += model.stays.bytes[stay];
    storages[group]++;
    if (isLast && model.stays.saved[stay]) saved[group] += model.stays.bytes[stay];
  }
  return { bytes, storages, saved };
}
