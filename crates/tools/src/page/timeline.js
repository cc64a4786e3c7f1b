// The timeline: live memory stacked by tag, reserved memory above it, and lanes of marks below. A
// column of pixels shows its moment with most live bytes, which a pyramid of maxima finds fast.

const GUTTER = 100;
const LANE_HEIGHT = 13;
const AXIS_HEIGHT = 22;

// An axis maps values to moments and events.
const timeAxis = {
  domain: model => {
    const { at, count } = model.events;
    const from = count ? at[0] : 0, to = count ? at[count - 1] : 1;
    return [from, to + Math.max((to - from) / 500, 1)];
  },
  momentAt: (model, value) => notAbove(model.events.at, value),
  firstEventFrom: (model, value) => below(model.events.at, value),
  valueOf: (model, moment) => model.events.at[Math.max(0, moment - 1)] ?? 0,
  least: 100,
};
const eventAxis = {
  domain: model => [0, model.events.count + 1],
  momentAt: (model, value) => Math.max(0, Math.min(model.events.count, Math.floor(value))),
  firstEventFrom: (model, value) => Math.max(0, Math.min(model.events.count, Math.ceil(value) - 1)),
  valueOf: (_, moment) => moment,
  least: 8,
};

// Whether most events share so few columns of the time axis that they cannot be told apart.
function isCrowded(model) {
  const { at, count } = model.events;
  if (!model.isTimed || count < 64) return false;
  const bins = new Uint32Array(200);
  const perNs = bins.length / (at[count - 1] - at[0]);
  for (let i = 0; i < count; i++) bins[Math.min(bins.length - 1, Math.floor((at[i] - at[0]) * perNs))]++;
  const fullest = bins.sort().slice(-4).reduce((sum, part) => sum + part, 0);
  return fullest > 0.8 * count;
}

// The first event at the left edge of each column, and the moment that each column shows.
function columnsOf(model, axis, [from, to], width) {
  const edges = new Uint32Array(width + 1), shown = new Uint32Array(width);
  for (let x = 0; x <= width; x++) edges[x] = axis.firstEventFrom(model, from + ((to - from) * x) / width);
  for (let x = 0; x < width; x++) {
    const first = axis.momentAt(model, from + ((to - from) * x) / width);
    shown[x] = highest(model.total, model.peaks, first, Math.max(first, edges[x + 1]) + 1);
  }
  return { edges, shown };
}

// The bytes of each slot for each column, summed from the bottom of the stack.
function stackOf(series, shown) {
  const { width: slots, order } = series;
  const tops = Array.from({ length: slots }, () => new Float64Array(shown.length));
  const values = new Float64Array(slots);
  for (let x = 0; x < shown.length; x++) {
    if (x === 0 || shown[x] !== shown[x - 1]) series.valuesAt(shown[x], values);
    let sum = 0;
    for (let i = 0; i < slots; i++) {
      sum += values[order[i]];
      tops[i][x] = sum;
    }
  }
  return tops;
}

function makeTimeline(app) {
  const canvas = byId("timeline"), overlay = byId("timeline-overlay");
  const view = { columns: null, tops: null, highest: 1, plot: null };

  const axis = () => (app.axis === "time" ? timeAxis : eventAxis);
  const xOf = value => view.plot.left + ((value - app.range[0]) / (app.range[1] - app.range[0])) * view.plot.width;
  const yOf = bytes => view.plot.bottom - (bytes / view.highest) * (view.plot.bottom - view.plot.top);

  function draw() {
    const { model, inks } = app;
    const { context, width, height, ratio } = fitCanvas(canvas);
    const left = Math.round(GUTTER * ratio);
    const bottom = height - Math.round((model.lanes.length * LANE_HEIGHT + AXIS_HEIGHT + 6) * ratio);
    view.plot = { left, width: Math.max(1, width - left - Math.round(2 * ratio)), top: Math.round(10 * ratio), bottom, ratio };
    view.columns = columnsOf(model, axis(), app.range, view.plot.width);
    view.tops = stackOf(app.series, view.columns.shown);
    view.highest = scale();
    context.fillStyle = inks.panel;
    context.fillRect(0, 0, width, height);
    drawStack(context);
    drawLevels(context);
    drawBytesAxis(context);
    drawValueAxis(context, height);
    drawLanes(context);
    drawOverlay();
  }

  // The bytes at the top edge: the maximum of the visible range, or of the whole history.
  function scale() {
    const { model } = app;
    const budget = number(model.stats.budget_bytes);
    let most = 0;
    if (app.isFitted) {
      for (const moment of view.columns.shown) most = Math.max(most, model.total[moment]);
    } else {
      most = Math.max(model.total[model.peak], model.reserved.bytes.reduce((a, b) => Math.max(a, b), 0));
      if (budget < 1.5 * most) most = Math.max(most, budget);
    }
    return 1.06 * most || 1;
  }

  // Each slot is painted down to the ground, the highest first, so no seams are visible.
  function drawStack(context) {
    const { inks, selected } = app;
    const { left, width, bottom, ratio } = view.plot;
    const chosen = selected ? selectedSlot() : -1;
    context.save();
    context.beginPath();
    context.rect(left, view.plot.top, width, bottom - view.plot.top);
    context.clip();
    drawReserved(context);
    for (let i = view.tops.length - 1; i >= 0; i--) {
      const slot = app.series.order[i];
      const tops = view.tops[i];
      const color = inks.tags[slot === COLORED + 1 ? COLORED + 1 : slot];
      context.fillStyle = chosen < 0 || chosen === slot ? color : faded(color, inks.panel);
      context.beginPath();
      context.moveTo(left, bottom);
      let y = NaN;
      for (let x = 0; x < width; x++) {
        const next = yOf(tops[x]);
        if (next === y) continue;
        if (x) context.lineTo(left + x, y);
        context.lineTo(left + x, next);
        y = next;
      }
      context.lineTo(left + width, y);
      context.lineTo(left + width, bottom);
      context.fill();
      context.strokeStyle = inks.panel;
      context.globalAlpha = 0.5;
      context.lineWidth = 0.75 * ratio;
      context.stroke();
      context.globalAlpha = 1;
    }
    context.restore();
  }

  const selectedSlot = () => {
    const group = app.grouped.byKey.get(app.selected);
    return !group ? -1 : group.slot === COLORED ? COLORED + 1 : group.slot;
  };

  // Reserved bytes: a line, and a tint above the live bytes.
  function drawReserved(context) {
    const { model, inks } = app;
    const { left, width, bottom, ratio } = view.plot;
    const { edges } = view.columns;
    const { at, bytes } = model.reserved;
    context.beginPath();
    let place = Math.max(0, notAbove(at, edges[0]) - 1);
    let y = yOf(bytes[place] ?? 0);
    context.moveTo(left - 4, y);
    for (let x = 0; x < width; x++) {
      let most = bytes[place] ?? 0;
      while (place + 1 < at.length && at[place + 1] <= edges[x + 1]) most = Math.max(most, bytes[++place]);
      const next = yOf(most);
      if (next === y) continue;
      context.lineTo(left + x, y);
      context.lineTo(left + x, next);
      y = next;
    }
    context.lineTo(left + width + 4, y);
    context.strokeStyle = inks.soft;
    context.lineWidth = 1.25 * ratio;
    context.stroke();
    context.lineTo(left + width + 4, bottom);
    context.lineTo(left - 4, bottom);
    context.fillStyle = inks.cached;
    context.fill();
  }

  function drawLevels(context) {
    const { model, inks } = app;
    const { left, width, top, ratio } = view.plot;
    const budget = number(model.stats.budget_bytes);
    if (!budget) return;
    const isAbove = budget > view.highest;
    const y = isAbove ? top : Math.round(yOf(budget));
    context.font = `${11 * ratio}px ${inks.font}`;
    const words = "budget " + bytesText(budget) + (isAbove ? " ↑" : "");
    const wide = context.measureText(words).width;
    if (!isAbove) {
      context.strokeStyle = inks.refuse;
      context.lineWidth = ratio;
      context.setLineDash([5 * ratio, 4 * ratio]);
      context.beginPath();
      context.moveTo(left, y + 0.5);
      context.lineTo(left + width, y + 0.5);
      context.stroke();
      context.setLineDash([]);
    }
    context.fillStyle = inks.panel;
    context.globalAlpha = 0.85;
    context.fillRect(left + width - wide - 12 * ratio, y + 3 * ratio, wide + 8 * ratio, 15 * ratio);
    context.globalAlpha = 1;
    context.fillStyle = isAbove ? inks.soft : inks.refuse;
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillText(words, left + width - 8 * ratio, y + 4 * ratio);
  }

  function drawBytesAxis(context) {
    const { inks } = app;
    const { left, width, ratio } = view.plot;
    const { at } = ticks(0, view.highest, 5, 2);
    context.font = `${11 * ratio}px ${inks.font}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const bytes of at) {
      const y = Math.round(yOf(bytes)) + 0.5;
      context.fillStyle = inks.soft;
      context.fillText(bytes ? bytesText(bytes).replace(/\.0+ /, " ") : "0", left - 8 * ratio, y);
      context.globalAlpha = bytes ? 0.16 : 1;
      context.strokeStyle = bytes ? inks.text : inks.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(left + width, y);
      context.stroke();
      context.globalAlpha = 1;
    }
  }

  function drawValueAxis(context, height) {
    const { inks } = app;
    const { left, width, ratio } = view.plot;
    const [from, to] = app.range;
    const { step, at } = ticks(from, to, width / (110 * ratio));
    context.font = `${11 * ratio}px ${inks.font}`;
    context.textBaseline = "alphabetic";
    context.fillStyle = inks.soft;
    for (const value of at) {
      const x = Math.round(xOf(value));
      const words = app.axis === "time" ? timeText(value, step) : countText(value);
      const half = context.measureText(words).width / 2;
      context.textAlign = x - half < left ? "left" : x + half > left + width ? "right" : "center";
      context.fillText(words, x, height - 6 * ratio);
      context.fillRect(x, height - AXIS_HEIGHT * ratio, 1, 4 * ratio);
    }
  }

  function drawLanes(context) {
    const { model, inks } = app;
    const { left, width, bottom, ratio } = view.plot;
    const { edges } = view.columns;
    const tick = Math.max(1, Math.round(ratio));
    context.font = `${10.5 * ratio}px ${inks.font}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    model.lanes.forEach((lane, row) => {
      const top = bottom + Math.round((6 + row * LANE_HEIGHT) * ratio), tall = Math.round((LANE_HEIGHT - 4) * ratio);
      context.fillStyle = inks.soft;
      context.globalAlpha = lane.kinds.some(kind => model.marks[kind].length) ? 1 : 0.45;
      context.fillText(lane.name, left - 8 * ratio, top + tall / 2);
      context.globalAlpha = 1;
      context.fillStyle = inks.free;
      context.fillRect(left, top, width, tall);
      // Of two kinds, gains are in the upper half and losses in the lower.
      lane.kinds.forEach((kind, half) => {
        const marks = model.marks[kind];
        const y = top + (half ? Math.floor(tall / 2) : 0), h = lane.kinds.length > 1 ? Math.ceil(tall / 2) : tall;
        const counts = kind === KERNEL && app.axis === "time" ? kernelsIn(marks) : countsIn(marks, edges);
        const most = counts.reduce((a, b) => Math.max(a, b), 1);
        context.fillStyle = inks[lane.color];
        for (let x = 0; x < width; x++) {
          if (!counts[x]) continue;
          context.globalAlpha = most === 1 ? 1 : 0.4 + (0.6 * counts[x]) / most;
          context.fillRect(left + x, y, tick, h);
        }
        context.globalAlpha = 1;
      });
    });
  }

  function countsIn(marks, edges) {
    const counts = new Uint32Array(edges.length - 1);
    let place = below(marks, edges[0]);
    for (let x = 0; x < counts.length && place < marks.length; x++) {
      const next = below(marks, edges[x + 1], place);
      counts[x] = next - place;
      place = next;
    }
    return counts;
  }

  // The number of kernels that ran in each column, by the device's clock.
  function kernelsIn(marks) {
    const { offset, bytes } = app.model.events;
    const { width } = view.plot;
    const changes = new Int32Array(width + 1);
    const perNs = width / (app.range[1] - app.range[0]);
    for (const i of marks) {
      const from = (offset[i] - app.range[0]) * perNs, to = from + bytes[i] * perNs;
      if (to < 0 || from >= width) continue;
      changes[Math.max(0, Math.floor(from))]++;
      changes[Math.min(width, Math.floor(to) + 1)]--;
    }
    for (let x = 1; x <= width; x++) changes[x] += changes[x - 1];
    return changes.subarray(0, width);
  }

  // The chosen moment and the pointer's position.
  function drawOverlay() {
    const { context, width, height, ratio } = fitCanvas(overlay);
    const { inks } = app;
    context.clearRect(0, 0, width, height);
    if (!view.plot) return;
    const line = (x, color, wide) => {
      if (x < view.plot.left || x > view.plot.left + view.plot.width) return;
      context.fillStyle = color;
      context.fillRect(Math.round(x), view.plot.top, Math.max(1, Math.round(wide * ratio)), height - view.plot.top - (AXIS_HEIGHT - 4) * ratio);
    };
    if (app.hover) line(view.plot.left + app.hover.x, inks.soft, 1);
    if (app.drag) {
      context.fillStyle = inks.accent;
      context.globalAlpha = 0.15;
      const [a, b] = app.drag.map(xOf);
      context.fillRect(Math.min(a, b), view.plot.top, Math.abs(b - a), view.plot.bottom - view.plot.top);
      context.globalAlpha = 1;
    }
    const x = xOf(axis().valueOf(app.model, app.moment));
    line(x, inks.accent, 1.5);
    if (x >= view.plot.left && x <= view.plot.left + view.plot.width) {
      const size = 5 * ratio;
      context.fillStyle = inks.accent;
      context.beginPath();
      context.moveTo(x - size, view.plot.top - 2 * ratio);
      context.lineTo(x + size + 1, view.plot.top - 2 * ratio);
      context.lineTo(x + 0.75 * ratio, view.plot.top + size);
      context.fill();
    }
  }

  // The column, moment and slot under a point of the canvas, in pixels of the page.
  function under(x, y) {
    if (!view.plot) return null;
    const { left, width, ratio } = view.plot;
    const column = Math.floor(x * ratio - left);
    if (column < 0 || column >= width) return null;
    const bytes = ((view.plot.bottom - y * ratio) / (view.plot.bottom - view.plot.top)) * view.highest;
    const place = bytes >= 0 ? view.tops.findIndex(tops => bytes < tops[column]) : -1;
    const { edges, shown } = view.columns;
    return { x: column, moment: shown[column], slot: place < 0 ? -1 : app.series.order[place], first: edges[column], end: edges[column + 1] };
  }

  const valueAt = x => {
    const { left, width, ratio } = view.plot;
    return app.range[0] + ((x * ratio - left) / width) * (app.range[1] - app.range[0]);
  };

  return { draw, drawOverlay, under, valueAt, axis, view };
}
