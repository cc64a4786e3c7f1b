// The texts and figures: the summary, the events, and the rows of the tables.

const level = (stats, name) => ({ now: number(stats[name]?.now), peak: number(stats[name]?.peak) });

const figure = (name, value, more, title = "") =>
  el("div", title ? { class: "figure", title } : { class: "figure" }, el("span", {}, name), typeof value === "string" ? el("b", {}, value) : value, el("span", {}, more));

function deviceText(model) {
  const { adapter, backend } = model.stats;
  const when = model.takenUnixMs ? new Date(model.takenUnixMs).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
  return [text(adapter) && printable(adapter, 80), text(backend) && printable(backend, 20), when].filter(Boolean).join("   ·   ");
}

// Live, free and other bytes on the device, relative to the budget.
function meter(model, inks) {
  const { stats } = model;
  const live = level(stats, "live_bytes"), cached = level(stats, "cached_bytes"), device = level(stats, "device_bytes");
  const budget = number(stats.budget_bytes);
  const rest = Math.max(0, device.now - live.now - cached.now);
  const whole = Math.max(budget, device.now, live.now + cached.now) || 1;
  const parts = [["live", live.now, inks.tags[0]], ["free in slabs", cached.now, inks.other], ["staging and others", rest, inks.reclaim]].filter(([, bytes]) => bytes > 0);
  const bar = el("div", { class: "meter", role: "img", "aria-label": parts.map(([name, bytes]) => name + " " + bytesText(bytes)).join(", ") },
    ...parts.map(([, bytes, color]) => el("i", { style: { width: (100 * bytes) / whole + "%", background: color } })));
  const legend = el("span", {}, ...parts.map(([name, bytes, color]) => el("span", { style: { "margin-right": "14px" } }, swatch(color), name + " " + bytesText(bytes))));
  const title = budget
    ? `on the device ${bytesText(device.now)} of a budget of ${bytesText(budget)}, peak ${bytesText(device.peak)}`
    : `on the device ${bytesText(device.now || live.now + cached.now)}, peak ${bytesText(device.peak)}, no budget`;
  return el("div", { class: "figure wide" }, el("span", {}, title), bar, legend);
}

// The reclaim tries that freed something, of all tries. The tooltip lists each step.
function reclaimFigure(stats) {
  const steps = list(stats.reclaim_steps).filter(one => number(one?.tries));
  const sum = name => steps.reduce((sum, one) => sum + number(one[name]), 0);
  const each = steps.map(one => `${printable(text(one.step), 20)}: ${countText(number(one.gains))} of ${countText(number(one.tries))}, ${bytesText(number(one.freed_bytes))}`);
  return figure("reclaim", `${countText(sum("gains"))} of ${countText(sum("tries"))}`, `tries freed ${bytesText(sum("freed_bytes"))}`, each.join("\n"));
}

// What left without a write. A source, such as the file of a model, gives it again.
function droppedFigure(stats) {
  const [dropped, atSource] = [number(stats.dropped_bytes), number(stats.dropped_to_source_bytes)];
  if (!dropped) return [];
  const where = atSource >= dropped ? "the source has it" : atSource ? `the source has ${bytesText(atSource)}` : "copies or recipes stay";
  return [figure("dropped", bytesText(dropped), where, "Evictions without a write: the bytes are elsewhere, so nothing went to the host or the disk.")];
}

// The slabs of the heap in the host's memory.
function heapFigure(stats) {
  const [heap, free, hole] = [level(stats, "host_slab_bytes"), number(stats.host_free_bytes), number(stats.host_largest_hole_bytes)];
  if (!heap.peak) return [];
  return [figure("host's heap", bytesText(heap.now), `${bytesText(free)} free, largest hole ${bytesText(hole)}`, `Slabs in the host's memory that the device copies evicted tensors to, and back. Peak ${bytesText(heap.peak)}.`)];
}

// How long passes waited for memory, and for what; how often where there was no clock. The tooltip
// lists whose memory they waited for.
const WAITED_FOR = ["device", "host", "store", "disk"];

function waitsFigure(stats) {
  const of = (all, end) => WAITED_FOR.map(name => [name, number(all[name + end])]).filter(([, amount]) => amount > 0);
  const sum = parts => parts.reduce((sum, [, amount]) => sum + amount, 0);
  const [times, waits] = [of(stats, "_wait_ns"), of(stats, "_waits")];
  if (!sum(waits)) return [];
  const [parts, words] = times.length ? [times, timeText] : [waits, countText];
  const each = parts.sort((a, b) => b[1] - a[1]).map(([name, amount]) => `${name} ${words(amount)}`);
  const makers = list(stats.memory_waits).slice(0, 8).map(one => {
    const key = times.length ? "ns" : "times";
    const amount = WAITED_FOR.reduce((sum, name) => sum + number(one?.waits?.[name]?.[key]), 0);
    return `${printable(text(one?.tag), 80)}: ${words(amount)}`;
  });
  return [figure("waited for memory", times.length ? timeText(sum(times)) : counted(sum(waits), "time"), each.join(", "), makers.join("\n"))];
}

// What a share holds, relative to its ceiling, else to its guarantee.
function shareFigure(share) {
  const [held, guaranteed, ceiling] = [number(share?.bytes?.now), number(share?.guaranteed_bytes), number(share?.ceiling_bytes)];
  const limits = `guarantee ${bytesText(guaranteed)}, ${ceiling ? "ceiling " + bytesText(ceiling) : "no ceiling"}`;
  const more = `peak ${bytesText(number(share?.bytes?.peak))}, ${countText(number(share?.evictions))} evicted, ${countText(number(share?.restores))} restored, ${countText(number(share?.refusals))} refused`;
  const state = share?.is_closed === true ? " (closed)" : held > guaranteed ? " (borrows)" : "";
  return figure("share " + printable(text(share?.path), 40) + state, bytesText(held), limits, more);
}

// What a store of the app holds, of what it may hold.
function storeFigure(store) {
  const traffic = `peak ${bytesText(number(store?.bytes?.peak))}, ${bytesText(number(store?.written_bytes))} written, ${bytesText(number(store?.read_bytes))} read`;
  const troubles = `${counted(number(store?.failures), "failure")}, ${countText(number(store?.lost))} lost`;
  const state = store?.rests === true ? " (rests)" : "";
  return figure("store " + printable(text(store?.name), 40) + state, bytesText(number(store?.bytes?.now)), `of ${bytesText(number(store?.most_bytes))}`, `${traffic}; ${troubles}`);
}

// Figures of more shares would hide the others. The holders can be grouped by share.
const MOST_SHARES = 12;

// A device has no more.
const MOST_STORES = 4;

// A number of the statistics in the unit that its name says.
function numberText(name, value) {
  const [now, peak] = [number(value?.now ?? value), number(value?.peak)];
  const words = name.endsWith("_bytes") ? bytesText : name.endsWith("_ns") ? timeText : name === "fragmentation" ? percentText : countText;
  return words(now) + (peak ? `, peak ${words(peak)}` : "");
}

// A file of another version may have more numbers than this.
const MOST_NUMBERS = 200;

// Every number of the statistics. The tooltip says what it is.
function allNumbers(stats) {
  const isNumber = value => Number.isFinite(value) || Number.isFinite(value?.now);
  const rows = Object.entries(stats).filter(([, value]) => isNumber(value)).slice(0, MOST_NUMBERS);
  const facts = rows.map(([name, value]) => el("div", { class: "fact", title: Object.hasOwn(HELP, name) ? HELP[name] : "" }, el("span", {}, printable(name, 60)), el("b", {}, numberText(name, value))));
  return el("details", {}, el("summary", { class: "soft" }, "All numbers"), el("div", { class: "numbers" }, ...facts));
}

function summary(model, inks) {
  const { stats } = model;
  const [live, reserved, storages] = ["live_bytes", "reserved_bytes", "live_storages"].map(name => level(stats, name));
  const saved = number(stats.saved_bytes);
  const figures = [
    figure("live", bytesText(live.now), `peak ${bytesText(live.peak)}`),
    figure("reserved", bytesText(reserved.now), `peak ${bytesText(reserved.peak)}`),
    ...(saved ? [figure("saved", bytesText(saved), "for backward", "Recorded operations need these live bytes until their backward has run.")] : []),
    meter(model, inks),
    figure("largest hole", bytesText(number(stats.largest_hole_bytes)), `fragmentation ${percentText(number(stats.fragmentation))}`),
    figure("storages", countText(storages.now), `in ${counted(model.slabCount, "slab")}`),
    figure("evicted", bytesText(number(stats.evicted_bytes)), `${countText(number(stats.evictions))} ×, ${countText(number(stats.restores))} restored`),
    ...heapFigure(stats),
    ...droppedFigure(stats),
    figure("refusals", countText(number(stats.refusals)), `${counted(number(stats.submissions), "submission")}`),
    reclaimFigure(stats),
    ...waitsFigure(stats),
    ...list(stats.stores).slice(0, MOST_STORES).map(storeFigure),
    ...list(stats.shares).slice(0, MOST_SHARES).map(shareFigure),
    allNumbers(stats),
  ];
  return figures;
}

function noticeText(model) {
  const notices = [];
  if (model.dropped) notices.push(`The first ${counted(model.dropped, "event")} were dropped. Older blocks are shown from the start of the history.`);
  if (!model.events.count) notices.push("No history was kept (GpuMemory::keep_history). The page shows only the moment of the snapshot.");
  if (model.clipped) notices.push(`${counted(model.clipped, "text")} of more than 1 KiB ${model.clipped === 1 ? "was" : "were"} clipped when this page was written.`);
  return notices.join(" ");
}

// A short description of an event: what happened, how many bytes, and the holder.
function eventWords(model, grouped, i) {
  const { kind, bytes, who, slab, id } = model.events;
  const size = bytesText(bytes[i]);
  const title = stay => (stay >= 0 ? grouped.groups[groupOf(model, grouped, stay)].title : "");
  const ending = title(model.ended[i]), begun = title(model.began[i]);
  switch (kind[i]) {
    case ALLOC: return ["alloc " + size, begun];
    case FREE: return ["free " + size, ending];
    case DONATE: return ["took over " + size, begun];
    case MOVE: return ["moved " + size, ending];
    case EVICT: return [WORDS.where[who[i]] === "Backed" ? `dropped ${size}, the source has it` : `evicted to ${WORDS.where[who[i]]?.toLowerCase() ?? "?"} ${size}`, ending];
    case RESTORE: return ["restored " + size, begun];
    case SLAB_CREATED: return ["slab created " + size, `#${slab[i]}, ${CLASSES[who[i]] ?? "?"}`];
    case SLAB_RELEASED: return ["slab released " + size, `#${slab[i]}`];
    case SUBMISSION: return ["submission " + countText(id[i]), `${counted(bytes[i], "command")} so far`];
    case RECLAIM_STEP: return [`reclaim step: ${WORDS.step[who[i]] ?? "?"}`, `freed ${size}`];
    case REFUSAL: return ["refused " + size, ""];
    case UPLOAD: return ["upload " + size, "storage " + countText(id[i])];
    case READ: return ["read " + size, "storage " + countText(id[i])];
    case HOST_SLAB_CREATED: return ["slab of the host's memory created " + size, `#${slab[i]}, ${CLASSES[who[i]] ?? "?"}`];
    case HOST_SLAB_RELEASED: return ["slab of the host's memory released " + size, `#${slab[i]}`];
    case HOST_ALLOC: return ["room in the host's memory " + size, grouped.groups[grouped.of[Math.min(who[i], grouped.of.length - 1)]].title];
    case HOST_FREE: return ["room in the host's memory free " + size, "storage " + countText(id[i])];
    case HOST_MOVE: return ["moved in the host's memory " + size, "storage " + countText(id[i])];
    case KERNEL: return [printable(model.kernels[who[i]] ?? "a kernel", 60), timeText(bytes[i])];
    default: return ["the device was reopened", ""];
  }
}

const KIND_WORDS = ["alloc", "free", "take-over", "move", "eviction", "restore", "slab created", "slab released", "submission", "reclaim step", "refusal", "reopening", "upload", "read", "kernel", "slab of the host created", "slab of the host released", "room in the host's memory", "room in the host's memory free", "move in the host's memory"];

// The events of a column: each one if they are few, else the count of each kind.
function eventRows(model, grouped, first, end) {
  if (end <= first) return [];
  const rows = [el("hr")];
  if (end - first <= 6) {
    for (let i = first; i < end; i++) rows.push(fact(...eventWords(model, grouped, i).reverse().map(words => words || "\u00a0")));
    return rows;
  }
  KINDS.forEach((_, kind) => {
    const count = below(model.marks[kind], end) - below(model.marks[kind], first);
    if (count) rows.push(fact(KIND_WORDS[kind], "× " + countText(count)));
  });
  return rows;
}

const colorOfGroup = (inks, group, selected) =>
  inks.tags[group.key === selected && group.slot === COLORED ? COLORED + 1 : group.slot];

// A long name takes the room of the details, which the title has too.
const LONG = 18;

function whoCell(app, row) {
  const { title, detail } = row.group;
  return el("div", { class: "who", title: row.group.whole }, swatch(colorOfGroup(app.inks, row.group, app.selected)), cutName(title, "b"), detail && title.length < LONG ? el("small", {}, detail) : null);
}

const searchedText = group => (group.title + " " + group.whole).toLowerCase();

function holderColumns(app) {
  return [
    { key: "who", title: "who", isText: true, value: row => row.group.title, show: row => whoCell(app, row) },
    { key: "bytes", title: "bytes", value: row => row.bytes, show: row => bytesText(row.bytes) },
    { key: "share", title: "share", class: "share", value: row => row.bytes, show: row => el("span", {}, el("span", { class: "share-bar" }, el("i", { style: { width: 100 * row.share + "%" } })), percentText(row.share)) },
    ...(number(app.doc.model.stats.saved_bytes) ? [{ key: "saved", title: "saved", value: row => row.saved, show: row => (row.saved ? bytesText(row.saved) : "") }] : []),
    { key: "storages", title: "storages", class: "narrow", value: row => row.storages, show: row => countText(row.storages) },
    { key: "peak", title: "peak", value: row => row.group.peak, show: row => bytesText(row.group.peak) },
  ];
}

function holderRows({ model, grouped }, moment) {
  const { bytes, storages, saved } = heldAt(model, grouped, moment);
  const all = bytes.reduce((sum, part) => sum + part, 0) || 1;
  return grouped.groups
    .filter(group => group.peak > 0 || bytes[group.number] > 0)
    .map(group => ({ key: group.key, group, searched: searchedText(group), bytes: bytes[group.number], storages: storages[group.number], saved: saved[group.number], share: bytes[group.number] / all, isGone: !bytes[group.number] }));
}

function differenceColumns(app) {
  const delta = row => {
    const share = Math.min(1, Math.abs(row.difference) / (app.greatestDifference || 1));
    const isMore = row.difference > 0;
    const bar = el("i", { class: isMore ? "is-more" : "is-less", style: { width: 50 * share + "%", [isMore ? "left" : "right"]: "50%" } });
    return el("span", {}, el("span", { class: row.difference ? (isMore ? "is-more" : "is-less") : "soft" }, signedBytesText(row.difference)), el("span", { class: "delta" }, bar));
  };
  return [
    { key: "who", title: "who", isText: true, value: row => row.group.title, show: row => whoCell(app, row) },
    { key: "before", title: "before", value: row => row.before, show: row => bytesText(row.before) },
    { key: "after", title: "after", value: row => row.after, show: row => bytesText(row.after) },
    { key: "storages", title: "storages", class: "narrow", value: row => row.storages, show: row => (row.storages > 0 ? "+" : row.storages < 0 ? "−" : "") + countText(Math.abs(row.storages)) },
    { key: "difference", title: "difference", class: "delta-column", value: row => Math.abs(row.difference), show: delta },
  ];
}

// The bytes of each group at the end of both snapshots.
function differenceRows(before, after) {
  const rows = new Map();
  [before, after].forEach((doc, side) => {
    const { bytes, storages } = heldAt(doc.model, doc.grouped, doc.model.events.count);
    for (const group of doc.grouped.groups) {
      if (!bytes[group.number] && !(group.peak > 0)) continue;
      const row = rows.get(group.key) ?? { key: group.key, group, searched: searchedText(group), before: 0, after: 0, storages: 0 };
      row[side ? "after" : "before"] += bytes[group.number];
      row.storages += (side ? 1 : -1) * storages[group.number];
      rows.set(group.key, row);
    }
  });
  return [...rows.values()].map(row => ({ ...row, difference: row.after - row.before, isGone: row.after === row.before && !row.storages }));
}

// The bytes by which groups have grown: in a comparison only these are coloured.
function growthOf(before, after) {
  return new Map(differenceRows(before, after).map(({ key, difference }) => [key, difference]));
}

// The sums of both snapshots side by side.
function differenceSummary(before, after) {
  const [a, b] = [before.stats, after.stats];
  const pair = (name, key) => {
    const [x, y] = [level(a, key).now, level(b, key).now];
    return figure(name, signedBytesText(y - x), `${bytesText(x)} → ${bytesText(y)}`);
  };
  const counts = (name, key) => figure(name, (number(b[key]) >= number(a[key]) ? "+" : "−") + countText(Math.abs(number(b[key]) - number(a[key]))), `${countText(number(a[key]))} → ${countText(number(b[key]))}`);
  const [x, y] = [number(a.largest_hole_bytes), number(b.largest_hole_bytes)];
  return [
    pair("live", "live_bytes"), pair("reserved", "reserved_bytes"), pair("on the device", "device_bytes"),
    figure("largest hole", signedBytesText(y - x), `${bytesText(x)} → ${bytesText(y)}`),
    counts("evicted", "evictions"), counts("refusals", "refusals"), counts("submissions", "submissions"),
  ];
}
