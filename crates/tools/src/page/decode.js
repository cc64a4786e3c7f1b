// Decodes a snapshot into columns, from the page's own data or from a JSON file that the user
// opened. Both are untrusted: values are converted to numbers, and texts are clipped.

const KINDS = [
  "Alloc", "Free", "Donate", "Move", "Evict", "Restore",
  "SlabCreated", "SlabReleased", "Submission", "ReclaimStep", "Refusal", "Reopened",
  "Upload", "Read", "Kernel",
  "HostSlabCreated", "HostSlabReleased", "HostAlloc", "HostFree", "HostMove",
];
const [
  ALLOC, FREE, DONATE, MOVE, EVICT, RESTORE,
  SLAB_CREATED, SLAB_RELEASED, SUBMISSION, RECLAIM_STEP, REFUSAL, REOPENED,
  UPLOAD, READ, KERNEL,
  HOST_SLAB_CREATED, HOST_SLAB_RELEASED, HOST_ALLOC, HOST_FREE, HOST_MOVE,
] = KINDS.keys();

// The fields of an event's row after its time and its name, by the columns that they go to.
const FIELDS = {
  Alloc: ["id", "who", "bytes", "slab", "offset"],
  Free: ["id", "bytes"],
  Donate: ["id", "heir", "who", "bytes"],
  Move: ["id", "bytes", "slab", "offset"],
  Evict: ["id", "bytes", "where"],
  Restore: ["id", "who", "bytes", "slab", "offset"],
  SlabCreated: ["slab", "bytes", "class"],
  SlabReleased: ["slab", "bytes"],
  Submission: ["id", "bytes"],
  ReclaimStep: ["step", "bytes"],
  Refusal: ["bytes"],
  Reopened: [],
  Upload: ["id", "bytes"],
  Read: ["id", "bytes"],
  Kernel: ["who", "offset", "end"],
  HostSlabCreated: ["slab", "bytes", "class"],
  HostSlabReleased: ["slab", "bytes"],
  HostAlloc: ["id", "who", "bytes", "slab", "offset"],
  HostFree: ["id", "bytes"],
  HostMove: ["id", "bytes", "slab", "offset"],
};

// Words that events refer to by number.
const WORDS = {
  where: ["Pending", "Device", "Imported", "Host", "Store", "Disk", "Backed", "Poisoned"],
  class: ["Small", "Middle", "Own", "Alone"],
  step: STEPS,
};
const CLASSES = WORDS.class;

const MOST_TEXT = 1024;

function number(value) {
  const n = Number(value);
  return n > 0 && n < Infinity ? n : 0;
}

const list = value => (Array.isArray(value) ? value : []);
const text = value => (typeof value === "string" ? value.slice(0, MOST_TEXT) : "");

// Columns for `count` events. `who` is a tag, or the number of a word or of a kernel's name.
// `offset` of a donation is the new storage's number, and that of a kernel is its begin. `bytes` of
// a submission is its number of commands, and that of a kernel is its duration.
function columns(count) {
  return {
    count,
    kind: new Uint8Array(count),
    at: new Float64Array(count),
    id: new Float64Array(count),
    bytes: new Float64Array(count),
    who: new Uint32Array(count),
    slab: new Uint32Array(count),
    offset: new Float64Array(count),
  };
}

function wordNumber(field, value) {
  const word = text(value).toLowerCase();
  const place = WORDS[field].findIndex(known => known.toLowerCase() === word);
  return place < 0 && field === "step" ? STEPS.indexOf("other") : Math.max(0, place);
}

function shortened(events, count) {
  const short = { count };
  for (const name of Object.keys(events)) {
    if (name !== "count") short[name] = events[name].subarray(0, count);
  }
  return short;
}

function eventsFromRows(rows) {
  const events = columns(rows.length);
  let count = 0, before = 0;
  for (const row of rows) {
    const fields = Array.isArray(row) && Object.hasOwn(FIELDS, row[1]) && FIELDS[row[1]];
    if (!fields) continue;
    events.kind[count] = KINDS.indexOf(row[1]);
    before = events.at[count] = Math.max(before, number(row[0]));
    fields.forEach((field, place) => {
      const value = row[place + 2];
      if (Object.hasOwn(WORDS, field)) events.who[count] = wordNumber(field, value);
      else if (field === "heir") events.offset[count] = number(value);
      else if (field === "end") events.bytes[count] = Math.max(0, number(value) - events.offset[count]);
      else events[field][count] = number(value);
    });
    count++;
  }
  return shortened(events, count);
}

// The form of page.rs. Each event has its kind, the time since the previous event, and its fields.
// All are numbers of seven bits a byte, least significant first. A number of a storage or slab is
// its distance from the last one.
function eventsFromBytes(data, count) {
  const events = columns(count);
  let at = 0, time = 0, id = 0, slab = 0;
  const next = () => {
    let byte = data[at++], value = byte & 127, scale = 128;
    while (byte >= 128) {
      byte = data[at++];
      value += (byte & 127) * scale;
      scale *= 128;
    }
    return value;
  };
  const distance = () => {
    const value = next();
    return value % 2 ? -(value + 1) / 2 : value / 2;
  };
  const read = {
    id: i => (events.id[i] = id += distance()),
    heir: i => (events.offset[i] = id += distance()),
    who: i => (events.who[i] = next()),
    bytes: i => (events.bytes[i] = next()),
    slab: i => (events.slab[i] = slab += distance()),
    offset: i => (events.offset[i] = next()),
    end: i => (events.bytes[i] = next()),
  };
  for (const field of Object.keys(WORDS)) read[field] = read.who;
  read.serial = i => (events.id[i] = next());
  const readers = KINDS.map(name => FIELDS[name].map(field => read[field]));
  readers[SUBMISSION][0] = read.serial;
  for (let i = 0; i < count; i++) {
    const kind = (events.kind[i] = data[at++]);
    events.at[i] = time += next();
    const fields = readers[kind];
    for (let f = 0; f < fields.length; f++) fields[f](i);
  }
  return events;
}

function bytesFromBase64(encoded) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(encoded);
  const decoded = atob(encoded);
  const data = new Uint8Array(decoded.length);
  for (let i = 0; i < data.length; i++) data[i] = decoded.charCodeAt(i);
  return data;
}

function tagOf(value) {
  if (!value || typeof value !== "object") return null;
  const { file, line, column, name, scope, share } = value;
  return { file: text(file), line: number(line), column: number(column), name: text(name), scope: text(scope), share: text(share) };
}

// The element types of storages: rows of a type and the storages' numbers.
function typesOf(rows) {
  const types = new Map();
  for (const row of list(rows)) for (const id of list(row?.[1])) types.set(number(id), text(row[0]));
  return types;
}

// The parts of a snapshot; throws a sentence if `doc` is not a snapshot.
function snapshotOf(doc, name, events = null) {
  if (!doc || doc.format !== "lapidary-snapshot") throw new Error("This is not a snapshot of lapidary.");
  const [oldest, newest] = VERSIONS;
  if (!(doc.version >= oldest && doc.version <= newest)) throw new Error(`This snapshot has version ${printable(doc.version, 20)}; this page reads versions ${oldest} to ${newest}.`);
  const slabsOf = rows => list(rows).map(slab => ({
    id: number(slab?.slab), className: text(slab?.class), bytes: number(slab?.size_bytes), blocks: list(slab?.blocks),
  }));
  const slabs = slabsOf(doc.slabs);
  return {
    name,
    takenAt: number(doc.taken_at_ns),
    takenUnixMs: number(doc.taken_unix_ms),
    granule: Math.max(1, number(doc.granule_bytes)),
    stats: doc.stats && typeof doc.stats === "object" ? doc.stats : {},
    tags: list(doc.tags).map(tagOf),
    kernels: list(doc.kernels).map(text),
    types: typesOf(doc.types),
    slabs,
    slabCount: slabs.length,
    hostSlabs: slabsOf(doc.host_slabs),
    evicted: list(doc.evicted).map(row => ({ id: number(row?.[0]), tag: number(row?.[1]), bytes: number(row?.[2]), where: text(row?.[3]) })),
    dropped: number(doc.dropped),
    events: events ?? eventsFromRows(list(doc.moments)),
  };
}
