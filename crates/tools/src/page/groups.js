// The holders: groups of tags, and their bytes at any moment.

// The number of the greatest groups with their own colour. The others share a grey.
const COLORED = 12;

const GROUPINGS = {
  tag: "tag",
  beginning: "name's beginning",
  kind: "kind",
  type: "type",
  scope: "scope",
  share: "share",
  site: "call site",
  name: "name",
};

const shortSite = tag => tag.file.split(/[\\/]/).pop() + ":" + tag.line;
const siteText = tag => tag.file + ":" + tag.line + (tag.column ? ":" + tag.column : "");

// The first two parts of a name, without a part that counts: `model.layers.*`, `layer *`.
function beginningOf(name) {
  const mark = name.includes(".") ? "." : "/";
  const parts = name.split(mark);
  if (parts.length === 1) return name.replace(/\d+$/, "*");
  const counting = parts.findIndex((part, place) => place > 0 && /^\d+$/.test(part));
  const most = Math.min(2, parts.length - 1, counting < 0 ? Infinity : counting);
  return parts.slice(0, most).join(mark) + mark + "*";
}

// What a holder is for, by the scopes and names that the library gives, and by those that models
// have. The first that fits counts.
const KINDS_OF_HOLDERS = [
  ["optimizer", tag => /^optimizer state$|momentum|exp_avg|adam/i.test(tag.name)],
  ["gradients", tag => tag.scope.split("/").includes("backward") || /\bgrad(ient)?s?$/i.test(tag.name)],
  ["cache", tag => /cache|\bkv\b/i.test(tag.name) || /\bcache\b/i.test(tag.scope)],
  ["weights", tag => /(^|[^a-z])(weights?|bias(es)?|embeddings?|gamma|beta|parameters?|running_(mean|var))$/i.test(tag.name) || /(^|\/)(parameters|weights|model)$/.test(tag.scope)],
];

// Activations have no name of their own, but recorded operations may have saved them.
function kindOf(tag, isSaved) {
  const kind = tag && KINDS_OF_HOLDERS.find(([, fits]) => fits(tag));
  return kind ? kind[0] : isSaved ? "saved for backward" : "others";
}

// Groupings of storages that have one tag.
const OF_STORAGES = {
  kind: (model, stay) => kindOf(model.tags[model.stays.tag[stay]], model.stays.saved[stay]),
  type: (model, stay) => model.types.get(model.stays.id[stay]) ?? "unknown: it ended before the snapshot, or is a buffer",
};

// A group's name, its key, and further details.
function nameOf(tag, grouping) {
  // No name has these keys: a name may be empty.
  if (!tag) return { key: "\u0000", title: "(all others)", detail: "" };
  switch (grouping) {
    case "scope": return { key: tag.scope, title: tag.scope || "(no scope)", detail: "" };
    case "share": return { key: tag.share, title: tag.share || "(no share)", detail: "" };
    case "kind": return { key: kindOf(tag, false), title: kindOf(tag, false), detail: "" };
    case "beginning": {
      const title = tag.name && beginningOf(tag.name);
      return { key: title, title: title || "(no name)", detail: "" };
    }
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
// are older than the history and have no known tag. `ofStay` is there if tags do not suffice.
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
  of[model.tags.length] = enter({ key: "\u0001", title: "(older than the history)", detail: "" });
  const grouped = { groups, of, byKey, ofStay: null };
  if (Object.hasOwn(OF_STORAGES, grouping)) {
    grouped.ofStay = Uint32Array.from({ length: model.stays.count }, (_, stay) => {
      const name = OF_STORAGES[grouping](model, stay);
      return enter({ key: name, title: name, detail: "" });
    });
  }
  findPeaks(model, grouped);
  return grouped;
}

// The number of a stay's group.
const groupOf = (model, grouped, stay) =>
  grouped.ofStay ? grouped.ofStay[stay] : grouped.of[Math.min(model.stays.tag[stay], grouped.of.length - 1)];

function findPeaks(model, grouped) {
  const { stays, ended, began, events } = model;
  const { groups } = grouped;
  const now = new Float64Array(groups.length), peak = new Float64Array(groups.length);
  const take = (stay, sign) => {
    const group = groupOf(model, grouped, stay);
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

// The highest bytes of each group in any of the models.
function peaksOf(groupings) {
  const peaks = new Map();
  for (const { groups } of groupings) {
    for (const { key, peak } of groups) peaks.set(key, Math.max(peaks.get(key) ?? 0, peak));
  }
  return peaks;
}

// Gives the groups with most bytes in `sizes` a slot for a colour, the same slot in each model.
function giveSlots(groupings, sizes) {
  const greatest = [...sizes].filter(([, peak]) => peak > 0).sort((a, b) => b[1] - a[1]).slice(0, COLORED);
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
  const slotOf = grouped.groups.map(group => (group === alone && group.slot === COLORED ? COLORED + 1 : group.slot));
  const slot = new Uint8Array(stays.count);
  for (let stay = 0; stay < stays.count; stay++) slot[stay] = slotOf[groupOf(model, grouped, stay)];
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
    const group = groupOf(model, grouped, stay);
    bytes[group] += model.stays.bytes[stay];
    storages[group]++;
    if (isLast && model.stays.saved[stay]) saved[group] += model.stays.bytes[stay];
  }
  return { bytes, storages, saved };
}
