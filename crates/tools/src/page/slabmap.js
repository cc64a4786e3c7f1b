// The slab map: the slabs of a moment as bars with their blocks. Slabs of a class share a scale, so
// small slabs stay readable beside large ones. The heading of a class shows its scale.

const LINE = 22;
const MOST_LINE = 34;
const BETWEEN = 5;
const HEADING = 24;
const GAP = 5;
const MOST_ZOOM = 4096;

// The classes with their slabs at a moment, their bytes, and the size of the largest slab.
function classesAt(model, moment) {
  const classes = new Map();
  for (const slab of model.slabs.values()) {
    if (!(slab.from <= moment && moment < slab.until) || !slab.bytes) continue;
    if (!classes.has(slab.className)) classes.set(slab.className, { name: slab.className, slabs: [], bytes: 0, largest: 0, live: 0 });
    const of = classes.get(slab.className);
    of.slabs.push(slab);
    of.bytes += slab.bytes;
    of.largest = Math.max(of.largest, slab.bytes);
  }
  const place = of => (CLASSES.indexOf(of.name) + CLASSES.length + 1) % (CLASSES.length + 1);
  return [...classes.values()].sort((a, b) => place(a) - place(b));
}

// Places slabs one after the other in lines. A slab wider than a line gets several lines.
function flow(slabs, width, perByte, put) {
  let x = 0, line = 0;
  for (const slab of slabs) {
    const wide = Math.max(3, slab.bytes * perByte);
    if (x > 0 && x + wide > width + 0.5) {
      x = 0;
      line++;
    }
    const lines = Math.max(1, Math.ceil((wide - 0.5) / width));
    put?.(slab, x, line, lines, Math.min(wide, width), wide);
    line += lines - 1;
    x = lines > 1 ? width : x + wide + GAP;
  }
  return line + 1;
}

// The place of every slab, in pixels of the page from the top of the map. Each class gets lines by
// the square root of its bytes, and the finest scale that needs no more lines. The largest slab
// fits in one line.
function layoutOf(classes, width, height, zoom, line = LINE) {
  const most = Math.max(classes.length, Math.floor((height - classes.length * HEADING) / line));
  const weights = classes.reduce((sum, of) => sum + Math.sqrt(of.bytes), 0);
  const places = [];
  let top = 0, lines = 0;
  for (const of of classes) {
    const share = Math.max(1, Math.floor((most * Math.sqrt(of.bytes)) / weights));
    let low = 0, high = width / of.largest;
    if (flow(of.slabs, width, high) > share) {
      for (let i = 0; i < 30; i++) {
        const middle = (low + high) / 2;
        if (flow(of.slabs, width, middle) > share) high = middle;
        else low = middle;
      }
    } else low = high;
    of.perByte = low * zoom;
    of.top = top;
    top += HEADING;
    const used = flow(of.slabs, width, of.perByte, (slab, x, row, count, wide, whole) => {
      places.push({ slab, x: Math.round(x), y: top + row * line, lines: count, wide, perByte: whole / slab.bytes });
    });
    top += used * line + 4;
    lines += used;
  }
  // Bars are taller if there is room.
  const roomy = Math.floor((height - classes.length * (HEADING + 4)) / Math.max(1, lines));
  if (line === LINE && roomy > LINE) return layoutOf(classes, width, height, zoom, Math.min(MOST_LINE, roomy));
  return { classes, places, bySlab: new Map(places.map(place => [place.slab.id, place])), height: top, width, line, bar: line - BETWEEN };
}

function makeSlabMap(app, canvas, scroller, spacer, modelNow) {
  const map = { zoom: 1, layout: null, live: [], chosen: -1, hover: -1 };

  // Finds the stays at the moment, and their bytes in each slab.
  function look() {
    const { model, moment } = modelNow();
    map.live = liveAt(model, moment).filter(stay => model.stays.slab[stay] !== UNKNOWN);
    map.liveBytes = new Map();
    for (const stay of map.live) {
      const slab = model.stays.slab[stay];
      map.liveBytes.set(slab, (map.liveBytes.get(slab) ?? 0) + model.stays.bytes[stay]);
    }
    map.classes = classesAt(model, moment);
  }

  function draw(isNew = true) {
    if (isNew) look();
    const { context, width, height, ratio } = fitCanvas(canvas);
    const { inks } = app;
    map.layout = layoutOf(map.classes, canvas.clientWidth, canvas.clientHeight, map.zoom);
    spacer.style.height = Math.max(0, map.layout.height - canvas.clientHeight) + "px";
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = inks.panel;
    context.fillRect(0, 0, width, height);
    context.setTransform(ratio, 0, 0, ratio, 0, -scroller.scrollTop * ratio);
    map.seen = [scroller.scrollTop - MOST_LINE, scroller.scrollTop + canvas.clientHeight];
    drawHeadings(context);
    drawSlabs(context);
    drawBlocks(context, ratio);
    drawChosen(context);
  }

  function drawHeadings(context) {
    const { inks } = app;
    context.textBaseline = "middle";
    for (const of of map.layout.classes) {
      const live = of.slabs.reduce((sum, slab) => sum + (map.liveBytes.get(slab.id) ?? 0), 0);
      const y = of.top + HEADING / 2 + 1;
      const name = of.name || "Slabs";
      context.textAlign = "left";
      context.font = `600 12px ${inks.font}`;
      context.fillStyle = inks.text;
      context.fillText(name, 0, y);
      const x = context.measureText(name).width + 10;
      context.font = `11.5px ${inks.font}`;
      context.fillStyle = inks.soft;
      context.fillText(`${counted(of.slabs.length, "slab")}   ${bytesText(of.bytes)}   ${percentText(live / of.bytes)} live`, x, y);
      drawScale(context, of, y);
    }
  }

  // The scale: a bar with its length in bytes.
  function drawScale(context, of, y) {
    const { inks } = app;
    const bytes = 2 ** Math.floor(Math.log2(90 / of.perByte));
    const long = bytes * of.perByte, right = map.layout.width;
    if (!(bytes >= 1) || long < 20) return;
    context.fillStyle = inks.faint;
    context.fillRect(right - long, y, long, 1);
    context.fillRect(right - long, y - 3, 1, 7);
    context.fillRect(right - 1, y - 3, 1, 7);
    context.textAlign = "right";
    context.fillStyle = inks.soft;
    context.fillText(bytesText(bytes).replace(/\.0+ /, " "), right - long - 7, y);
  }

  function eachPart(place, offset, bytes, take) {
    const { width } = map.layout;
    let x = place.x + offset * place.perByte;
    let left = bytes * place.perByte;
    if (place.lines === 1) return take(x, place.y, left);
    let line = Math.floor(offset * place.perByte / width);
    x = offset * place.perByte - line * width;
    while (left > 0.01) {
      const part = Math.min(left, width - x);
      const y = place.y + line * map.layout.line;
      if (y > map.seen[1]) return;
      if (y >= map.seen[0]) take(x, y, part);
      left -= part;
      x = 0;
      line++;
    }
  }

  const isSeen = place => place.y <= map.seen[1] && place.y + place.lines * map.layout.line >= map.seen[0];

  function drawSlabs(context) {
    context.fillStyle = app.inks.free;
    for (const place of map.layout.places) {
      if (isSeen(place)) eachPart(place, 0, place.slab.bytes, (x, y, wide) => context.fillRect(x, y, wide, map.layout.bar));
    }
  }

  // Blocks narrower than 1.5 pixels are mixed column by column. So a hundred thousand blocks need
  // only one rectangle for each column.
  function drawBlocks(context, ratio) {
    const { stays } = modelNow().model;
    const { bySlab, bar } = map.layout;
    const mixed = new Map();
    let place = null, slab = -1, color = "";
    for (const stay of map.live) {
      if (stays.slab[stay] !== slab) {
        slab = stays.slab[stay];
        place = bySlab.get(slab);
        if (place && !isSeen(place)) place = null;
      }
      if (!place) continue;
      const left = stays.offset[stay] * place.perByte, wide = stays.bytes[stay] * place.perByte;
      const next = colorOf(stay);
      if (place.lines === 1 && wide * ratio < 1.5) {
        if (!mixed.has(place)) mixed.set(place, new Float32Array(4 * (Math.ceil(place.wide * ratio) + 2)));
        mix(mixed.get(place), left * ratio, (left + wide) * ratio, partsOf(next));
        continue;
      }
      if (next !== color) context.fillStyle = color = next;
      eachPart(place, stays.offset[stay], stays.bytes[stay], (x, y, long) => context.fillRect(x, y, long > 4 ? long - 0.75 : long, bar));
    }
    for (const [{ x, y }, columns] of mixed) {
      for (let column = 0; column < columns.length; column += 4) {
        const share = columns[column + 3];
        if (!share) continue;
        const [r, g, b] = [0, 1, 2].map(part => Math.round(columns[column + part] / share));
        context.fillStyle = `rgb(${r} ${g} ${b} / ${Math.min(1, share).toFixed(3)})`;
        context.fillRect(x + column / 4 / ratio, y, 1 / ratio, bar);
      }
    }
  }

  // Adds a colour to the columns that it covers, weighted by the covered share.
  function mix(columns, from, to, [r, g, b]) {
    for (let column = Math.floor(from); column < to; column++) {
      const share = Math.min(to, column + 1) - Math.max(from, column);
      const at = 4 * column;
      columns[at] += r * share;
      columns[at + 1] += g * share;
      columns[at + 2] += b * share;
      columns[at + 3] += share;
    }
  }

  function colorOf(stay) {
    const { inks, selected } = app;
    const { model, grouped } = modelNow();
    const { stays } = model;
    const group = grouped.groups[groupOf(model, grouped, stay)];
    const isChosen = !selected || group.key === selected;
    let color;
    if (app.colorBy === "size") color = inks.sizes[SIZES.findIndex(most => stays.bytes[stay] <= most)];
    else if (app.colorBy === "state") color = inks.states[STATES[stateOf(stay)]] ?? inks.states.came[stays.came[stay]];
    else color = inks.tags[selected === group.key && group.slot === COLORED ? COLORED + 1 : group.slot];
    return isChosen ? color : faded(color, inks.free);
  }

  // Pins are known only at the end.
  const stateOf = stay => {
    const { model, moment } = modelNow();
    return moment === model.events.count ? model.stays.state[stay] : 0;
  };

  function drawChosen(context) {
    const { stays } = modelNow().model;
    for (const [stay, color, wide] of [[map.hover, app.inks.text, 1], [map.chosen, app.inks.accent, 2]]) {
      const place = stay >= 0 && map.live.includes(stay) && map.layout.bySlab.get(stays.slab[stay]);
      if (!place) continue;
      context.strokeStyle = color;
      context.lineWidth = wide;
      eachPart(place, stays.offset[stay], stays.bytes[stay], (x, y, long) => context.strokeRect(x - 0.5, y - 0.5, Math.max(2, long), map.layout.bar + 1));
    }
  }

  // The slab, the offset and the block under a point of the canvas.
  function under(x, y) {
    if (!map.layout) return null;
    const at = y + scroller.scrollTop;
    const { width } = map.layout;
    const place = map.layout.places.find(place => at >= place.y && at < place.y + place.lines * map.layout.line && (place.lines > 1 || (x >= place.x - 1 && x <= place.x + place.wide + 1)));
    if (!place) return null;
    const line = Math.floor((at - place.y) / map.layout.line);
    const offset = Math.max(0, (line * width + x - place.x) / place.perByte);
    if (offset >= place.slab.bytes) return null;
    return { slab: place.slab, offset, stay: blockAt(place.slab.id, offset, 1 / place.perByte) };
  }

  // The block at an offset; the largest if one pixel has several.
  function blockAt(slab, offset, slack) {
    const { stays } = modelNow().model;
    let best = -1;
    for (const stay of map.live) {
      if (stays.slab[stay] !== slab) continue;
      const from = stays.offset[stay], to = from + stays.bytes[stay];
      if (offset >= from && offset < to) return stay;
      if (offset + slack > from && offset - slack < to && (best < 0 || stays.bytes[stay] > stays.bytes[best])) best = stay;
    }
    return best;
  }

  // The hole around an offset.
  function holeAt(slab, offset) {
    const { stays } = modelNow().model;
    let from = 0, to = slab.bytes;
    for (const stay of map.live) {
      if (stays.slab[stay] !== slab.id) continue;
      const start = stays.offset[stay], end = start + stays.bytes[stay];
      if (end <= offset) from = Math.max(from, end);
      if (start > offset) to = Math.min(to, start);
    }
    return { from, bytes: Math.max(0, to - from) };
  }

  // Chooses the next block in the order of the map.
  function chooseNext(direction) {
    const { stays } = modelNow().model;
    const order = new Map(map.layout.places.map((place, number) => [place.slab.id, number]));
    const sorted = map.live.filter(stay => order.has(stays.slab[stay]))
      .sort((a, b) => order.get(stays.slab[a]) - order.get(stays.slab[b]) || stays.offset[a] - stays.offset[b]);
    if (!sorted.length) return -1;
    const at = sorted.indexOf(map.chosen);
    map.chosen = sorted[at < 0 ? 0 : (at + direction + sorted.length) % sorted.length];
    const place = map.layout.bySlab.get(stays.slab[map.chosen]);
    const top = place.y + Math.floor((stays.offset[map.chosen] * place.perByte) / map.layout.width) * (place.lines > 1 ? map.layout.line : 0);
    if (top < scroller.scrollTop || top + map.layout.line > scroller.scrollTop + canvas.clientHeight) scroller.scrollTop = top - canvas.clientHeight / 2;
    draw(false);
    return map.chosen;
  }

  // Zooms around a height of the map that keeps its place.
  function zoomBy(factor, y) {
    const before = map.zoom;
    map.zoom = Math.max(1, Math.min(MOST_ZOOM, map.zoom * factor));
    if (map.zoom === before) return;
    const share = (scroller.scrollTop + y) / Math.max(1, map.layout.height);
    draw(false);
    scroller.scrollTop = share * map.layout.height - y;
    draw(false);
  }

  return { draw, under, holeAt, chooseNext, zoomBy, stateOf, map };
}
