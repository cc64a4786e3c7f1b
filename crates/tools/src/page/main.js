// The state of the page: which snapshot is shown how, and when it is painted.

const app = {
  docs: [],
  view: 0,
  axis: "time",
  range: [0, 1],
  moment: 0,
  selected: null,
  grouping: "tag",
  colorBy: "tag",
  isFitted: false,
  hover: null,
  drag: null,
  inks: null,
  lastPaintMs: 0,
  get isDifference() { return this.view === 2; },
  get doc() { return this.docs[this.view] ?? this.docs[0]; },
  get model() { return this.doc.model; },
  get grouped() { return this.doc.grouped; },
  get series() { return this.doc.series; },
};
const timeline = makeTimeline(app);
let maps = [], table = null;

// Painting waits for the next frame, and several requests are painted at once.
const wanted = new Set();

app.paint = (...parts) => {
  if (!wanted.size) requestAnimationFrame(paintWanted);
  parts.forEach(part => wanted.add(part));
};

function paintWanted() {
  const parts = new Set(wanted);
  wanted.clear();
  if (!app.doc) return;
  const start = performance.now();
  if (parts.has("timeline") && !app.isDifference) {
    timeline.draw();
    drawOverview();
  } else if (parts.has("overlay") && !app.isDifference) timeline.drawOverlay();
  if (parts.has("map")) maps.forEach(map => map.draw());
  else if (parts.has("map-marks")) maps.forEach(map => map.draw(false));
  if (parts.has("rows")) table.set(app.isDifference ? app.differences() : holderRows(app.doc, app.moment));
  else if (parts.has("table")) table.paint();
  if (parts.has("moment")) tellMoment();
  if (parts.has("timeline")) tellRange();
  app.lastPaintMs = performance.now() - start;
}

const everything = ["timeline", "map", "rows", "moment"];

app.differences = () => {
  const rows = differenceRows(...app.docs);
  app.greatestDifference = rows.reduce((most, row) => Math.max(most, Math.abs(row.difference)), 0);
  return rows;
};

// The range of the axis is within its domain and not too narrow to distinguish events.
app.domain = () => timeline.axis().domain(app.model);
app.setRange = (from, to, keepsWidth = false) => {
  const [least, most] = app.domain();
  const wide = Math.min(most - least, Math.max(to - from, Math.min(timeline.axis().least, most - least)));
  const start = keepsWidth || to - from < wide ? (keepsWidth ? from : (from + to - wide) / 2) : from;
  const clamped = Math.max(least, Math.min(most - wide, start));
  app.range = [clamped, clamped + wide];
  app.paint("timeline");
};
app.panBy = share => {
  const by = share * (app.range[1] - app.range[0]);
  app.setRange(app.range[0] + by, app.range[1] + by, true);
};
app.zoomBy = (factor, around) => {
  const [from, to] = app.range;
  const fixed = Math.max(from, Math.min(to, around));
  app.setRange(fixed - (fixed - from) * factor, fixed + (to - fixed) * factor);
};
// The chosen moment, if it is visible, else the middle.
app.zoomCentre = () => {
  const [from, to] = app.range;
  const chosen = timeline.axis().valueOf(app.model, app.moment);
  return chosen >= from && chosen <= to ? chosen : (from + to) / 2;
};
app.showAll = () => {
  app.range = app.domain();
  app.paint("timeline");
};
app.setAxis = axis => {
  if (axis === "time" && !app.model.isTimed) return;
  app.axis = axis;
  app.showAll();
  pressed("axes", axis);
};
app.setFitted = isFitted => {
  app.isFitted = isFitted;
  byId("fit").setAttribute("aria-pressed", String(isFitted));
  app.paint("timeline");
};

app.setMoment = (moment, isFollowed = false) => {
  app.moment = Math.max(0, Math.min(app.model.events.count, moment));
  if (isFollowed) {
    const value = timeline.axis().valueOf(app.model, app.moment);
    const wide = app.range[1] - app.range[0];
    if (value < app.range[0] || value > app.range[1]) app.setRange(value - wide / 2, value + wide / 2, true);
  }
  app.paint("overlay", "map", "rows", "moment");
};

app.select = (key, isRevealed = false) => {
  app.selected = key === app.selected && !isRevealed ? null : key;
  for (const doc of app.docs) {
    const group = app.selected && doc.grouped.byKey.get(app.selected);
    const alone = group && group.slot === COLORED ? group : null;
    if (doc.alone !== alone) {
      doc.alone = alone;
      doc.series = seriesOf(doc.model, doc.grouped, alone);
    }
  }
  app.paint("timeline", "map-marks", "table");
  if (isRevealed) requestAnimationFrame(() => table.reveal());
};

function tellMoment() {
  const { model, grouped } = app.doc;
  const { count, at } = model.events;
  const isEnd = app.moment === count;
  const time = model.isTimed && app.moment ? timeText(at[app.moment - 1], 1000) : "";
  byId("moment-name").textContent = isEnd ? "At the end" + (time && `, ${time}`) : app.moment === 0 ? "Before the first event" : "At " + (time || "event " + countText(app.moment));
  const storages = liveAt(model, app.moment).length;
  const facts = [`live ${bytesText(model.total[app.moment])} in ${counted(storages, "storage")}`, `reserved ${bytesText(reservedAt(model, app.moment))}`];
  if (count) facts.push(`event ${countText(app.moment)} of ${countText(count)}`);
  if (app.doc.heap) facts.push(`host's heap ${bytesText(app.doc.heap.model.total[app.moment])} of ${bytesText(reservedAt(app.doc.heap.model, app.moment))}`);
  if (app.moment) facts.push(eventWords(model, grouped, app.moment - 1).filter(Boolean).join(", "));
  byId("moment-facts").textContent = facts.join("   ·   ");
}

function tellRange() {
  const { model } = app.doc;
  const [from, to] = app.range;
  const [least, most] = app.domain();
  const lasted = model.isTimed ? model.events.at[model.events.count - 1] - model.events.at[0] : 0;
  const all = app.axis === "time" ? timeText(to - from) : counted(Math.round(to - from), "event");
  byId("offer").hidden = app.axis !== "time" || !app.doc.isCrowded;
  byId("range").textContent = to - from >= most - least ? `${counted(model.events.count, "event")}${model.isTimed ? " in " + timeText(lasted) : ""}` : `${all} shown`;
}

app.hoverTimeline = (at, event) => {
  app.hover = at && timeline.under(at.x, at.y);
  app.paint("overlay");
  if (!app.hover) return tooltip.hide();
  const { model, grouped, inks } = app;
  const { moment, slot, first, end } = app.hover;
  const rows = [el("h3", {}, model.isTimed ? timeText(model.events.at[Math.max(0, moment - 1)], 1000) : "event " + countText(moment))];
  if (slot >= 0) {
    const values = new Float64Array(app.series.width);
    app.series.valuesAt(moment, values);
    const group = slot < COLORED ? grouped.groups.find(group => group.slot === slot) : slot > COLORED ? app.doc.alone : null;
    rows.push(fact(group ? group.title : "others", bytesText(values[slot]), swatch(inks.tags[slot])));
  }
  rows.push(fact("live", bytesText(model.total[moment])), fact("reserved", bytesText(reservedAt(model, moment))));
  tooltip.show(event.clientX, event.clientY, ...rows, ...eventRows(model, grouped, first, end));
};

// The facts about a block.
function stayRows(doc, map, stay) {
  const { model, grouped } = doc;
  const { stays, events } = model;
  const group = grouped.groups[groupOf(model, grouped, stay)];
  const since = moment => (moment === 0 ? "before the first event" : model.isTimed ? timeText(events.at[moment - 1], 1000) : "event " + countText(moment));
  const state = STATES[map.stateOf(stay)].toLowerCase();
  return [
    el("h3", {}, swatch(colorOfGroup(app.inks, group, app.selected)), group.title),
    group.whole !== group.title ? el("p", {}, group.whole) : null,
    fact("storage", countText(stays.id[stay])),
    fact("bytes", bytesText(stays.bytes[stay]) + (stays.asked[stay] && stays.asked[stay] !== stays.bytes[stay] ? `, asked ${countText(stays.asked[stay])}` : "")),
    fact("slab, offset", `#${stays.slab[stay]}, ${countText(stays.offset[stay])}`),
    fact("since", since(stays.born[stay])),
    stays.came[stay] > CAME_NEW ? fact(CAME_WORDS[stays.came[stay]], since(stays.from[stay])) : null,
    stays.until[stay] !== FOREVER ? fact("until", since(stays.until[stay])) : null,
    fact("state", { live: "may be moved or evicted", clean: "may be dropped: a copy exists", pinned: "pinned" }[state]),
    stays.saved[stay] ? fact("saved", "for backward, when the snapshot was taken") : null,
  ];
}

app.hoverMap = (map, under, event) => {
  const stay = under?.stay ?? -1;
  if (map.map.hover !== stay) {
    map.map.hover = stay;
    map.draw(false);
  }
  if (!under) return tooltip.hide();
  const { slab, offset } = under;
  if (stay >= 0) return tooltip.show(event.clientX, event.clientY, ...stayRows(map.doc(), map, stay));
  const hole = map.holeAt(slab, offset);
  tooltip.show(event.clientX, event.clientY, el("h3", {}, "free"), fact("bytes", bytesText(hole.bytes)), fact("slab, offset", `#${slab.id}, ${countText(hole.from)}`), fact("slab", `${bytesText(slab.bytes)}, ${slab.className || "?"}`));
};
app.chooseStay = (map, stay) => {
  const { model, grouped } = map.doc();
  if (stay >= 0) app.select(grouped.groups[groupOf(model, grouped, stay)].key, true);
  else app.select(null);
};
app.tellStay = (map, stay) => {
  if (stay < 0) return;
  const rows = stayRows(map.doc(), map, stay).filter(Boolean);
  say(rows.map(row => row.textContent).join(", "));
  const box = map.canvas.getBoundingClientRect();
  tooltip.show(box.left, box.bottom - 180, ...rows);
};

app.nextColor = () => setColor({ tag: "size", size: "state", state: "tag" }[app.colorBy]);
function setColor(colorBy) {
  app.colorBy = colorBy;
  pressed("colors", colorBy);
  showLegend();
  app.paint("map-marks");
}

function showLegend() {
  const { inks } = app;
  const entries = {
    tag: app.isDifference ? [[inks.other, "grew less, or not"]] : [],
    size: SIZES.map((most, i) => [inks.sizes[i], most === Infinity ? "more" : "≤ " + bytesText(most).replace(/\.0+ /, " ")]),
    state: [...CAME_WORDS.map((words, came) => [inks.states.came[came], words]), [inks.states.Pinned, "pinned"], [inks.states.Clean, "with a copy"]],
  }[app.colorBy];
  byId("legend").replaceChildren(...entries.map(([color, words]) => el("span", {}, swatch(color), words)));
}

app.nextTheme = () => {
  document.documentElement.dataset.theme = themeNow() === "dark" ? "light" : "dark";
  newInks();
};

function newInks() {
  app.inks = inks();
  if (app.doc) showDoc();
}

// A row of buttons of which one is pressed.
function choice(id, options, choose) {
  byId(id).replaceChildren(...Object.entries(options).map(([key, words]) => el("button", { type: "button", "data-key": key, onclick: () => choose(key) }, words)));
}
function pressed(id, key) {
  if (id === "axes") byId(id).firstChild.disabled = !app.model?.isTimed;
  for (const button of byId(id).children) button.setAttribute("aria-pressed", String(button.dataset.key === String(key)));
}

// The overview does not depend on the zoom of the timeline.
let overviewKept = {};
function overviewColumns(model, range, wide) {
  const { axis } = app;
  if (overviewKept.model !== model || overviewKept.axis !== axis || overviewKept.wide !== wide) {
    overviewKept = { model, axis, wide, shown: columnsOf(model, timeline.axis(), range, wide).shown };
  }
  return overviewKept.shown;
}

function drawOverview() {
  const { context, width, height, ratio } = fitCanvas(byId("overview"));
  const { model, inks } = app;
  const left = GUTTER * ratio, wide = Math.max(1, Math.round(width - left - 2 * ratio));
  const [least, most] = app.domain();
  const scale = (height - 3 * ratio) / (model.total[model.peak] || 1);
  context.fillStyle = inks.panel;
  context.fillRect(0, 0, width, height);
  context.fillStyle = inks.free;
  context.fillRect(left, 0, wide, height);
  context.fillStyle = inks.faint;
  const shown = overviewColumns(model, [least, most], wide);
  for (let x = 0; x < wide; x++) context.fillRect(left + x, height, 1, -model.total[shown[x]] * scale);
  const xOf = value => left + ((value - least) / (most - least)) * wide;
  const [from, to] = app.range.map(xOf);
  context.fillStyle = inks.panel;
  context.globalAlpha = 0.65;
  context.fillRect(left, 0, from - left, height);
  context.fillRect(to, 0, left + wide - to, height);
  context.globalAlpha = 1;
  if (to - from < wide - 1) {
    context.strokeStyle = inks.accent;
    context.lineWidth = 1.5 * ratio;
    context.strokeRect(from, 0.75 * ratio, Math.max(3 * ratio, to - from), height - 1.5 * ratio);
  }
}

// Builds everything for the snapshot or the two snapshots of the view.
function showDoc() {
  document.body.classList.toggle("is-difference", app.isDifference);
  byId("empty").hidden = true;
  const { model } = app.doc;
  byId("device").textContent = deviceText(model);
  const notice = app.isDifference ? "" : noticeText(model);
  byId("notice").textContent = notice;
  byId("notice").hidden = !notice;
  byId("summary").replaceChildren(...(app.isDifference ? differenceSummary(...app.docs.map(doc => doc.model)) : summary(model, app.inks)));
  byId("history").hidden = !model.events.count;
  byId("views").hidden = app.docs.length < 2;
  pressed("views", app.view);
  showMaps();
  const columns = app.isDifference ? differenceColumns(app) : holderColumns(app);
  table = makeTable(app, byId("table"), { columns, sortedBy: app.isDifference ? "difference" : "bytes", onChoose: (row, isMoved) => app.select(row.key, isMoved) });
  table.filter(byId("filter").value);
  showLegend();
  app.paint(...everything);
}

// A map for each snapshot of the view, and one for its heap in the host's memory.
function showMaps() {
  const docs = app.isDifference ? app.docs : [app.doc];
  const shown = docs.flatMap((doc, number) => {
    const name = app.isDifference ? ["Before", "After"][number] : "";
    const heap = doc.heap && [doc.heap, [name, "In the host's memory"].filter(Boolean).join(": ")];
    return [[doc, name], ...(heap ? [heap] : [])];
  });
  maps = shown.map(([doc, name]) => {
    const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Slab map. Arrow keys go from block to block, Enter chooses the block's holder." });
    const spacer = el("div");
    const scroller = el("div", { class: "map-scroller" }, canvas, spacer);
    const momentNow = () => (app.isDifference ? doc.model.events.count : app.moment);
    const map = makeSlabMap(app, canvas, scroller, spacer, () => ({ model: doc.model, grouped: doc.grouped, moment: momentNow() }));
    Object.assign(map, { canvas, doc: () => doc });
    listenToMap(app, map, canvas);
    scroller.addEventListener("scroll", () => map.draw(false));
    map.element = el("div", { class: "map" }, name ? el("h3", {}, name) : null, scroller);
    return map;
  });
  byId("map-list").replaceChildren(...maps.map(map => map.element));
}

function setView(view) {
  app.view = view;
  app.selected = null;
  app.hover = null;
  tooltip.hide();
  if (!app.model.isTimed) app.axis = "events";
  regroup();
  pressed("axes", app.axis);
  app.moment = app.model.events.count;
  app.range = app.domain();
  showDoc();
}

function regroup() {
  const all = app.docs.flatMap(doc => [doc, doc.heap].filter(Boolean));
  for (const doc of all) doc.grouped = groupsOf(doc.model, app.grouping);
  const groupings = all.map(doc => doc.grouped);
  giveSlots(groupings, app.isDifference ? growthOf(...app.docs) : peaksOf(groupings));
  for (const doc of app.docs) Object.assign(doc, { alone: null, series: seriesOf(doc.model, doc.grouped) });
}

function take(snapshots) {
  app.docs = snapshots.map(snapshot => {
    const model = modelOf(snapshot), heap = heapOf(snapshot);
    return { snapshot, model, heap: heap && { model: modelOf(heap) }, isCrowded: isCrowded(model) };
  });
  app.axis = "time";
  setView(snapshots.length === 2 ? 2 : 0);
}

// Reads a file that the user chose. Its contents do not leave the page.
app.read = async (file, place) => {
  try {
    const snapshot = snapshotOf(JSON.parse(await file.text()), file.name);
    const others = app.docs.map(doc => doc.snapshot);
    take(place === 1 && others.length ? [others[0], snapshot] : [snapshot]);
  } catch (error) {
    byId("notice").textContent = printable(file.name, 60) + ": " + printable(error.message, 200);
    byId("notice").hidden = false;
  }
};

function embedded() {
  return [...document.querySelectorAll("script[data-snapshot]")].map(element => {
    const doc = JSON.parse(element.textContent);
    const bytes = bytesFromBase64(byId(element.dataset.snapshot).textContent);
    return Object.assign(snapshotOf(doc, "", eventsFromBytes(bytes, number(doc.event_count))), { clipped: number(doc.clipped) });
  });
}

function start() {
  app.inks = inks();
  choice("axes", { time: "Time", events: "Events" }, app.setAxis);
  choice("colors", { tag: "Tag", size: "Size", state: "State" }, setColor);
  choice("views", { 0: "Before", 1: "After", 2: "Difference" }, view => setView(Number(view)));
  pressed("colors", app.colorBy);
  byId("grouping").append(...Object.entries(GROUPINGS).map(([key, words]) => el("option", { value: key }, words)));
  byId("grouping").addEventListener("change", event => {
    app.grouping = event.target.value;
    app.selected = null;
    regroup();
    app.paint(...everything);
  });
  byId("filter").addEventListener("input", event => table?.filter(event.target.value));
  const clicks = {
    theme: app.nextTheme, all: app.showAll, offer: () => app.setAxis("events"), fit: () => app.setFitted(!app.isFitted), help: () => byId("keys").showModal(),
    back: () => app.setMoment(app.moment - 1, true), forth: () => app.setMoment(app.moment + 1, true),
    peak: () => app.setMoment(app.model.peak, true), end: () => app.setMoment(app.model.events.count, true),
  };
  for (const [id, run] of Object.entries(clicks)) byId(id).addEventListener("click", () => app.doc && run());
  listenToTimeline(app, timeline);
  listenToOverview(app);
  listenToKeys(app);
  listenToFiles(app);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", newInks);
  new ResizeObserver(() => app.doc && app.paint("timeline", "map-marks", "table")).observe(document.body);
  const snapshots = embedded();
  if (snapshots.length) take(snapshots);
  else byId("empty").hidden = false;
}

start();
globalThis.lapidary = app;
requestAnimationFrame(() => setTimeout(() => { document.documentElement.dataset.readyMs = Math.round(performance.now()); }));
