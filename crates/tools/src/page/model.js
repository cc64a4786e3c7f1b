// The places of all storages over time. A moment is a count of events: 0 is before the first event,
// `count` is after the last.
//
// A *stay* is a block of one storage at one place. It exists at moment m if from <= m < until. A
// question about a moment looks at all stays, which takes a millisecond or two for a million. So
// nothing is replayed.

const UNKNOWN = 0xffffffff;
const FOREVER = 0xffffffff;

// How a stay began.
const [CAME_BEFORE, CAME_NEW, CAME_HANDED, CAME_MOVED, CAME_BACK] = [0, 1, 2, 3, 4];
const STATES = ["Live", "Clean", "Pinned"];

// From numbers of storages to numbers of stays; -1 for none.
function lookup(ids, count) {
  let least = Infinity, greatest = 0;
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] < least) least = ids[i];
    if (ids[i] > greatest) greatest = ids[i];
  }
  if (greatest - least < 8 * count + 65536) {
    const table = new Int32Array(Math.max(0, greatest - least) + 1).fill(-1);
    return {
      get: id => table[id - least] ?? -1,
      set: (id, stay) => { table[id - least] = stay; },
    };
  }
  const map = new Map();
  return { get: id => map.get(id) ?? -1, set: (id, stay) => { map.set(id, stay); } };
}

function stayColumns(most) {
  return {
    count: 0,
    from: new Uint32Array(most),
    until: new Uint32Array(most).fill(FOREVER),
    id: new Float64Array(most),
    tag: new Uint32Array(most),
    slab: new Uint32Array(most).fill(UNKNOWN),
    offset: new Float64Array(most),
    asked: new Float64Array(most),
    bytes: new Float64Array(most),
    came: new Uint8Array(most),
    state: new Uint8Array(most),
    saved: new Uint8Array(most),
    born: new Uint32Array(most),
  };
}

// All slabs that ever existed, by number, with the moments of their beginning and end.
function slabsOf(snapshot) {
  const { events } = snapshot;
  const slabs = new Map();
  const add = (id, bytes, className, from) => {
    const slab = { id, bytes, className, from, until: FOREVER, index: slabs.size };
    slabs.set(id, slab);
    return slab;
  };
  // Those that a lost device would take along.
  let present = [];
  for (let i = 0; i < events.count; i++) {
    const kind = events.kind[i];
    if (kind === SLAB_CREATED) {
      present.push(add(events.slab[i], events.bytes[i], CLASSES[events.who[i]], i + 1));
    } else if (kind === SLAB_RELEASED) {
      const slab = slabs.get(events.slab[i]) ?? add(events.slab[i], events.bytes[i], "", 0);
      slab.until = i + 1;
    } else if (kind === REOPENED) {
      for (const slab of present) slab.until = Math.min(slab.until, i + 1);
      present = [];
    }
  }
  for (const { id, bytes, className } of snapshot.slabs) {
    const slab = slabs.get(id) ?? add(id, bytes, className, 0);
    Object.assign(slab, { bytes, className });
  }
  return slabs;
}

// All stays, and for each event the stay that it ended and the stay that it began.
function staysOf(snapshot) {
  const { events, granule } = snapshot;
  const blocks = snapshot.slabs.flatMap(slab => slab.blocks);
  const most = 2 * events.count + blocks.length;
  const stays = stayColumns(most);
  const ended = new Int32Array(events.count).fill(-1), began = new Int32Array(events.count).fill(-1);
  const ids = Float64Array.from(blocks, block => number(block?.[3]));
  const open = lookup(storagesIn(events, ids), most);

  const add = (id, tag, asked, from, came) => {
    const stay = stays.count++;
    stays.id[stay] = id;
    stays.tag[stay] = tag;
    stays.asked[stay] = asked;
    stays.bytes[stay] = Math.ceil(asked / granule) * granule;
    stays.from[stay] = from;
    stays.came[stay] = came;
    stays.born[stay] = from;
    open.set(id, stay);
    return stay;
  };
  const begin = (i, id, tag, came) => {
    const stay = add(id, tag, events.bytes[i], i + 1, came);
    began[i] = stay;
    return stay;
  };
  // A storage that ends without a beginning is older than the history.
  const end = (i, id) => {
    let stay = open.get(id);
    if (stay < 0) stay = add(id, UNKNOWN, events.bytes[i], 0, CAME_BEFORE);
    stays.until[stay] = i + 1;
    ended[i] = stay;
    open.set(id, -1);
    return stay;
  };
  const put = (stay, slab, offset) => {
    stays.slab[stay] = slab;
    stays.offset[stay] = offset;
  };

  // The stays before this one have ended.
  let first = 0;
  for (let i = 0; i < events.count; i++) {
    const id = events.id[i];
    switch (events.kind[i]) {
      case ALLOC:
      case RESTORE:
        if (open.get(id) >= 0) end(i, id);
        put(begin(i, id, events.who[i], events.kind[i] === ALLOC ? CAME_NEW : CAME_BACK), events.slab[i], events.offset[i]);
        break;
      case FREE:
      case EVICT:
        end(i, id);
        break;
      case DONATE: {
        const stay = end(i, id);
        put(begin(i, events.offset[i], events.who[i], CAME_HANDED), stays.slab[stay], stays.offset[stay]);
        break;
      }
      case MOVE: {
        const stay = end(i, id);
        const moved = begin(i, id, stays.tag[stay], CAME_MOVED);
        stays.born[moved] = stays.born[stay];
        put(moved, events.slab[i], events.offset[i]);
        break;
      }
      case REOPENED:
        for (; first < stays.count; first++) {
          stays.until[first] = Math.min(stays.until[first], i + 1);
          open.set(stays.id[first], -1);
        }
    }
  }
  for (const slab of snapshot.slabs) {
    for (const block of slab.blocks) {
      const [offset, granted, size, id, tag] = list(block).map(number);
      let stay = open.get(id);
      if (stay < 0) stay = add(id, tag, size, 0, CAME_BEFORE);
      // The snapshot has names given later, and places that dropped events would have told.
      stays.tag[stay] = tag;
      stays.bytes[stay] = granted;
      stays.state[stay] = Math.max(0, STATES.indexOf(block[5]));
      stays.saved[stay] = Number(block[7] === true);
      put(stay, slab.id, offset);
    }
  }
  tellBack(events, stays, ended, began);
  return { stays, ended, began };
}

// A block's last place tells earlier ones: that of a donation before the new storage, and the tag
// before a move.
function tellBack(events, stays, ended, began) {
  for (let i = events.count - 1; i >= 0; i--) {
    const before = ended[i], after = began[i];
    if (before < 0 || after < 0) continue;
    if (events.kind[i] === DONATE && stays.slab[before] === UNKNOWN) {
      stays.slab[before] = stays.slab[after];
      stays.offset[before] = stays.offset[after];
    } else if (events.kind[i] === MOVE) {
      stays.tag[before] = stays.tag[after];
    }
  }
}

// The numbers of all storages that events and blocks name.
function storagesIn(events, more) {
  const all = new Float64Array(2 * events.count + more.length);
  let count = 0;
  for (let i = 0; i < events.count; i++) {
    const kind = events.kind[i];
    if (kind > RESTORE) continue;
    all[count++] = events.id[i];
    if (kind === DONATE) all[count++] = events.offset[i];
  }
  all.set(more, count);
  return all.subarray(0, count + more.length);
}

// The least size of a slab that only blocks name. It was there from when the device was opened, and
// until it was lost.
function addNamedSlabs({ events }, slabs, stays) {
  const reopened = [];
  for (let i = 0; i < events.count; i++) if (events.kind[i] === REOPENED) reopened.push(i + 1);
  for (let stay = 0; stay < stays.count; stay++) {
    const id = stays.slab[stay];
    if (id === UNKNOWN) continue;
    let slab = slabs.get(id);
    if (!slab) {
      const next = below(reopened, stays.from[stay] + 1);
      const from = reopened[next - 1] ?? 0, until = reopened[next] ?? FOREVER;
      slab = { id, bytes: 0, className: "", from, until, index: slabs.size, isGuessed: true };
      slabs.set(id, slab);
    }
    if (slab.isGuessed) slab.bytes = Math.max(slab.bytes, stays.offset[stay] + stays.bytes[stay]);
  }
}

// Live bytes at every moment, and the moments at which reserved bytes change.
function totalsOf(snapshot, slabs, { stays, ended, began }) {
  const { events } = snapshot;
  const total = new Float64Array(events.count + 1);
  for (let stay = 0; stay < stays.count; stay++) if (stays.from[stay] === 0) total[0] += stays.bytes[stay];
  for (let i = 0; i < events.count; i++) {
    let now = total[i];
    if (ended[i] >= 0) now -= stays.bytes[ended[i]];
    if (began[i] >= 0) now += stays.bytes[began[i]];
    total[i + 1] = events.kind[i] === REOPENED ? 0 : now;
  }
  const changes = [];
  for (const slab of slabs.values()) {
    changes.push([slab.from, slab.bytes]);
    if (slab.until !== FOREVER) changes.push([slab.until, -slab.bytes]);
  }
  changes.sort((a, b) => a[0] - b[0]);
  const reserved = { at: [0], bytes: [0] };
  for (const [moment, bytes] of changes) {
    const last = reserved.at.length - 1;
    const sum = reserved.bytes[last] + bytes;
    if (reserved.at[last] === moment) reserved.bytes[last] = sum;
    else { reserved.at.push(moment); reserved.bytes.push(sum); }
  }
  return { total, reserved };
}

// The events of the heap in the host's memory, as those of a device.
const AS_OF_DEVICE = new Map([[HOST_SLAB_CREATED, SLAB_CREATED], [HOST_SLAB_RELEASED, SLAB_RELEASED], [HOST_ALLOC, ALLOC], [HOST_FREE, FREE], [HOST_MOVE, MOVE], [REOPENED, REOPENED]]);

// The snapshot of that heap: its slabs and its events. All other events are there, and place
// nothing, so that a moment is the same for both. `null` if there never was such a heap.
function heapOf(snapshot) {
  const { events, hostSlabs } = snapshot;
  if (!hostSlabs.length && !events.kind.includes(HOST_SLAB_CREATED)) return null;
  const kind = events.kind.map(kind => AS_OF_DEVICE.get(kind) ?? SUBMISSION);
  return { ...snapshot, slabs: hostSlabs, slabCount: hostSlabs.length, events: { ...events, kind } };
}

// The model of a snapshot, with the places of marks in each lane and other precomputed values.
function modelOf(snapshot) {
  const { events } = snapshot;
  const slabs = slabsOf(snapshot);
  const { stays, ended, began } = staysOf(snapshot);
  addNamedSlabs(snapshot, slabs, stays);
  const { total, reserved } = totalsOf(snapshot, slabs, { stays, ended, began });
  const peaks = pyramid(total);
  const marks = marksOf(events);
  const lanes = LANES.filter(lane => !lane.isOptional || lane.kinds.some(kind => marks[kind].length));
  const isTimed = events.count > 1 && events.at[events.count - 1] > events.at[0];
  return { ...snapshot, slabs, stays, ended, began, total, reserved, peaks, peak: highest(total, peaks, 0, total.length), marks, lanes, isTimed };
}

// Lanes of marks below the timeline. With two kinds, the first is a gain and the second a loss.
// Optional lanes are shown only if they have marks.
const LANES = [
  { name: "slabs", kinds: [SLAB_CREATED, SLAB_RELEASED], color: "slab" },
  { name: "reclaim", kinds: [RECLAIM_STEP], color: "reclaim" },
  { name: "evicted · restored", kinds: [EVICT, RESTORE], color: "evict" },
  { name: "refused", kinds: [REFUSAL, REOPENED], color: "refuse" },
  { name: "host's heap", kinds: [HOST_ALLOC, HOST_FREE], color: "evict", isOptional: true },
  { name: "submitted", kinds: [SUBMISSION], color: "submit" },
  { name: "up · down", kinds: [UPLOAD, READ], color: "slab", isOptional: true },
  { name: "kernels", kinds: [KERNEL], color: "accent", isOptional: true },
];

// The indices of the events of each kind.
function marksOf(events) {
  const counts = new Uint32Array(KINDS.length);
  for (let i = 0; i < events.count; i++) counts[events.kind[i]]++;
  const marks = Array.from(counts, count => new Uint32Array(count));
  counts.fill(0);
  for (let i = 0; i < events.count; i++) {
    const kind = events.kind[i];
    marks[kind][counts[kind]++] = i;
  }
  return marks;
}

// Indices of the highest value of each 64 values, of each 128, and so on.
const SPAN = 64;

function pyramid(values) {
  const levels = [new Uint32Array(Math.floor(values.length / SPAN))];
  for (let block = 0; block < levels[0].length; block++) {
    let best = block * SPAN;
    for (let i = best + 1; i < (block + 1) * SPAN; i++) if (values[i] > values[best]) best = i;
    levels[0][block] = best;
  }
  for (let below = levels[0]; below.length >= 2; below = levels[levels.length - 1]) {
    const level = new Uint32Array(below.length >> 1);
    for (let i = 0; i < level.length; i++) {
      level[i] = values[below[2 * i + 1]] > values[below[2 * i]] ? below[2 * i + 1] : below[2 * i];
    }
    levels.push(level);
  }
  return levels;
}

// The index of the highest value in a range that is not empty.
function highest(values, levels, from, to) {
  let best = from;
  for (let i = from; i < to;) {
    if (i % SPAN || to - i < SPAN) {
      if (values[i] > values[best]) best = i;
      i++;
      continue;
    }
    let level = 0, block = i / SPAN, size = SPAN;
    while (block % 2 === 0 && i + 2 * size <= to && level + 1 < levels.length && block / 2 < levels[level + 1].length) {
      level++;
      block /= 2;
      size *= 2;
    }
    if (values[levels[level][block]] > values[best]) best = levels[level][block];
    i += size;
  }
  return best;
}

// The number of values in an ascending list that are below a value, or not above it.
function below(sorted, value, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (sorted[middle] < value) from = middle + 1;
    else to = middle;
  }
  return from;
}

function notAbove(sorted, value, from = 0, to = sorted.length) {
  while (from < to) {
    const middle = (from + to) >>> 1;
    if (sorted[middle] <= value) from = middle + 1;
    else to = middle;
  }
  return from;
}

const reservedAt = (model, moment) => model.reserved.bytes[notAbove(model.reserved.at, moment) - 1] ?? 0;

// The stays at a moment. The result for the last moment is kept.
function liveAt(model, moment) {
  if (model.liveMoment === moment) return model.live;
  const { from, until, count } = model.stays;
  const live = new Uint32Array(count);
  let found = 0;
  for (let stay = 0; stay < count; stay++) {
    live[found] = stay;
    found += from[stay] <= moment && moment < until[stay] ? 1 : 0;
  }
  model.liveMoment = moment;
  model.live = live.slice(0, found);
  return model.live;
}
