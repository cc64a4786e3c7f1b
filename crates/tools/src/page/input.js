// Pointer, wheel, touch and keys.

// The timeline: wheel and pinch zoom, a drag pans (with shift: chooses a range), a click chooses a
// moment.
function listenToTimeline(app, timeline) {
  const overlay = byId("timeline-overlay");
  const pointers = new Map();
  let start = null;

  const place = event => {
    const box = overlay.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };

  overlay.addEventListener("wheel", event => {
    event.preventDefault();
    const unit = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      app.panBy(((event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX) * unit) / overlay.clientWidth);
    } else {
      app.zoomBy(Math.exp(event.deltaY * unit * (event.ctrlKey ? 0.01 : 0.0022)), timeline.valueAt(place(event).x));
    }
  }, { passive: false });

  overlay.addEventListener("pointerdown", event => {
    overlay.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
    const at = place(event);
    start = { ...at, range: [...app.range], value: timeline.valueAt(at.x), isMoved: false, isRange: event.shiftKey };
    if (pointers.size === 2) start.spread = spread();
  });

  const spread = () => {
    const [a, b] = [...pointers.values()];
    return Math.max(10, Math.abs(a.x - b.x));
  };

  overlay.addEventListener("pointermove", event => {
    const at = place(event);
    if (!pointers.has(event.pointerId)) return app.hoverTimeline(at, event);
    pointers.set(event.pointerId, at);
    const wide = start.range[1] - start.range[0];
    if (pointers.size === 2 && start.spread) {
      const factor = start.spread / spread();
      start.isMoved = true;
      app.setRange(start.value - (start.value - start.range[0]) * factor, start.value + (start.range[1] - start.value) * factor);
      return;
    }
    if (!start.isMoved && Math.abs(at.x - start.x) < 4) return;
    start.isMoved = true;
    tooltip.hide();
    if (start.isRange) {
      app.drag = [start.value, timeline.valueAt(at.x)];
      app.paint("overlay");
    } else {
      const by = ((start.x - at.x) / (overlay.clientWidth - GUTTER)) * wide;
      app.setRange(start.range[0] + by, start.range[1] + by, true);
    }
  });

  const finish = event => {
    if (!pointers.delete(event.pointerId) || pointers.size) return;
    if (app.drag) {
      const [from, to] = app.drag.sort((a, b) => a - b);
      app.drag = null;
      app.setRange(from, to);
    } else if (!start.isMoved && event.type === "pointerup") {
      const under = timeline.under(start.x, start.y);
      if (under) app.setMoment(under.moment);
    }
    start = null;
  };
  overlay.addEventListener("pointerup", finish);
  overlay.addEventListener("pointercancel", finish);
  overlay.addEventListener("pointerleave", () => app.hoverTimeline(null));
  overlay.addEventListener("dblclick", () => app.showAll());
}

// The overview: a drag moves the visible range.
function listenToOverview(app) {
  const canvas = byId("overview");
  let isDown = false;
  const go = event => {
    const box = canvas.getBoundingClientRect();
    const share = (event.clientX - box.left - GUTTER) / Math.max(1, box.width - GUTTER);
    const [from, to] = app.domain();
    const half = (app.range[1] - app.range[0]) / 2, middle = from + share * (to - from);
    app.setRange(middle - half, middle + half, true);
  };
  canvas.addEventListener("pointerdown", event => {
    canvas.setPointerCapture(event.pointerId);
    isDown = true;
    go(event);
  });
  canvas.addEventListener("pointermove", event => isDown && go(event));
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { isDown = false; });
  canvas.addEventListener("dblclick", () => app.showAll());
}

// A slab map: hovering shows a block, a click chooses its tag, wheel with control or alt zooms.
function listenToMap(app, map, canvas) {
  const place = event => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointermove", event => app.hoverMap(map, map.under(...place(event)), event));
  canvas.addEventListener("pointerleave", () => app.hoverMap(map, null));
  canvas.addEventListener("click", event => {
    const under = map.under(...place(event));
    map.map.chosen = under?.stay ?? -1;
    app.chooseStay(map, under?.stay ?? -1);
  });
  canvas.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.altKey && !event.metaKey) return;
    event.preventDefault();
    map.zoomBy(Math.exp(-event.deltaY * 0.004), place(event)[1]);
  }, { passive: false });
  canvas.addEventListener("keydown", event => {
    const keys = {
      ArrowRight: () => app.tellStay(map, map.chooseNext(1)),
      ArrowLeft: () => app.tellStay(map, map.chooseNext(-1)),
      Enter: () => app.chooseStay(map, map.map.chosen),
      "+": () => map.zoomBy(1.5, 0),
      "=": () => map.zoomBy(1.5, 0),
      "-": () => map.zoomBy(1 / 1.5, 0),
      0: () => map.zoomBy(1e-9, 0),
    };
    if (!Object.hasOwn(keys, event.key) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    keys[event.key]();
  });
}

// The keys with their actions and descriptions.
function keysOf(app) {
  return [
    { keys: ["ArrowLeft", "ArrowRight"], shown: "← →", words: "move along the timeline", run: event => app.panBy((event.key === "ArrowLeft" ? -1 : 1) * (event.shiftKey ? 0.5 : 0.1)) },
    { keys: ["+", "="], shown: "+", words: "zoom in, about the chosen moment", run: () => app.zoomBy(1 / 1.5, app.zoomCentre()) },
    { keys: ["-", "_"], shown: "−", words: "zoom out", run: () => app.zoomBy(1.5, app.zoomCentre()) },
    { keys: ["0"], shown: "0", words: "show all", run: () => app.showAll() },
    { keys: [",", "."], shown: ", .", words: "previous event, next event", run: event => app.setMoment(app.moment + (event.key === "," ? -1 : 1), true) },
    { keys: ["p"], shown: "p", words: "the moment with most live memory", run: () => app.setMoment(app.doc.model.peak, true) },
    { keys: ["e"], shown: "e", words: "the end: when the snapshot was taken", run: () => app.setMoment(app.doc.model.events.count, true) },
    { keys: ["t"], shown: "t", words: "by time or by event", run: () => app.setAxis(app.axis === "time" ? "events" : "time") },
    { keys: ["y"], shown: "y", words: "fit the height to the visible range", run: () => app.setFitted(!app.isFitted) },
    { keys: ["c"], shown: "c", words: "colour blocks by tag, size, state", run: () => app.nextColor() },
    { keys: ["/"], shown: "/", words: "filter the holders", run: () => byId("filter").focus() },
    { keys: ["d"], shown: "d", words: "light or dark", run: () => app.nextTheme() },
    { keys: ["Escape"], shown: "Esc", words: "choose nothing", run: () => app.select(null) },
    { keys: ["?"], shown: "?", words: "these keys", run: () => byId("keys").showModal() },
  ];
}

function listenToKeys(app) {
  const keys = keysOf(app);
  byId("keys").replaceChildren(
    el("h2", {}, "Keys"),
    el("dl", {}, ...keys.flatMap(({ shown, words }) => [el("dt", {}, ...shown.split(" ").flatMap((key, i) => [i ? " " : "", el("kbd", {}, key)])), el("dd", {}, words)])),
    el("dl", {}, el("dt", {}, "wheel, pinch"), el("dd", {}, "zoom"), el("dt", {}, "drag"), el("dd", {}, "move; with shift, choose a range"), el("dt", {}, "click"), el("dd", {}, "choose a moment, a block, a holder"), el("dt", {}, "ctrl + wheel"), el("dd", {}, "zoom the slabs; arrows go from block to block")),
  );
  byId("keys").addEventListener("click", () => byId("keys").close());
  document.addEventListener("keydown", event => {
    const target = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (byId("keys").open) {
      if (event.key === "Escape" || event.key === "?") byId("keys").close();
      return;
    }
    if (target instanceof HTMLInputElement || target instanceof HTMLSelectElement) {
      if (event.key === "Escape") target.blur();
      return;
    }
    const found = keys.find(key => key.keys.includes(event.key));
    if (!found || !app.doc) return;
    event.preventDefault();
    found.run(event);
  });
}

// Files that are dropped or chosen. The first replaces the page's snapshot; the one to compare with
// comes second.
function listenToFiles(app) {
  const input = byId("file");
  let place = 0;
  const ask = at => () => {
    place = at;
    input.value = "";
    input.click();
  };
  byId("open").addEventListener("click", ask(0));
  byId("choose").addEventListener("click", ask(0));
  byId("compare").addEventListener("click", ask(1));
  input.addEventListener("change", () => input.files[0] && app.read(input.files[0], place));
  const isFile = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragover", event => {
    if (!isFile(event)) return;
    event.preventDefault();
    document.body.classList.add("is-dropping");
  });
  addEventListener("dragleave", () => document.body.classList.remove("is-dropping"));
  addEventListener("drop", event => {
    document.body.classList.remove("is-dropping");
    if (!isFile(event)) return;
    event.preventDefault();
    [...event.dataTransfer.files].slice(0, 2).forEach((file, number, files) => app.read(file, files.length === 2 ? number : 0));
  });
}
