// Looks for bugs. It writes four words of y for each range of x. Two are the numbers of elements of
// the first kind and of the second. The others are the least index of either kind, and one more
// than the greatest.

//# head
struct Params { w0: vec4<u32>, w1: vec4<u32> }

fn noted(all: vec4<u32>, kind: u32, i: u32) -> vec4<u32> {
  if kind == 0u { return all; }
  let counts = all.xy + select(vec2<u32>(0u, 1u), vec2<u32>(1u, 0u), kind == 1u);
  return vec4<u32>(counts, min(all.z, i), max(all.w, i + 1u));
}

fn say(slot: u32, all: vec4<u32>) {
  y_put(4u * slot, all.x);
  y_put(4u * slot + 1u, all.y);
  y_put(4u * slot + 2u, all.z);
  y_put(4u * slot + 3u, all.w);
}

//# range
// p.w0: the first word, the number of elements, the first answer, and the number of workgroups.
// p.w1: the elements of a row, those without padding, and the place of the first one in its row.
var<workgroup> found: array<vec4<u32>, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  var all = vec4<u32>(0u, 0u, 0xffffffffu, 0u);
  for (var i = group.x * 64u + lane; i < p.w0.y; i += p.w0.w * 64u) {
    if p.w1.x == 0u || (i + p.w1.z) % p.w1.x < p.w1.y {
      all = noted(all, kind(i), i);
    }
  }
  found[lane] = all;
  workgroupBarrier();
  if lane == 0u {
    for (var k = 1u; k < 64u; k++) {
      let one = found[k];
      all = vec4<u32>(all.xy + one.xy, min(all.z, one.z), max(all.w, one.w));
    }
    say(p.w0.z + group.x, all);
  }
}

//# table
// What to look at stands where the answers go, as first word and number of words.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if id.x >= p.w0.y { return; }
  let slot = p.w0.z + id.x;
  let start = y_get(4u * slot);
  let len = y_get(4u * slot + 1u);
  var all = vec4<u32>(0u, 0u, 0xffffffffu, 0u);
  for (var i = 0u; i < len; i++) {
    all = noted(all, u32(x_get(start + i) != PATTERN), i);
  }
  say(slot, all);
}

//# words
fn kind(i: u32) -> u32 { return u32(x_get(p.w0.x + i) != PATTERN); }

//# clear
// What was never written reads as zero.
fn kind(i: u32) -> u32 {
  if x_get(p.w0.x + i) != PATTERN { return 0u; }
  x_put(p.w0.x + i, 0u);
  return 1u;
}

//# f32
// NaN, or an infinity: told by the bits, since a compiler may think that there are none.
fn kind(i: u32) -> u32 { return of_size(x_get(p.w0.x + i) & 0x7fffffffu, 0x7f800000u); }

//# f16
fn kind(i: u32) -> u32 { return of_size(half(i) & 0x7fffu, 0x7c00u); }

//# bf16
fn kind(i: u32) -> u32 { return of_size(half(i) & 0x7fffu, 0x7f80u); }

//# floats
fn half(i: u32) -> u32 { return x_get(p.w0.x + (i >> 1u)) >> (16u * (i & 1u)); }

fn of_size(size: u32, infinity: u32) -> u32 {
  return select(select(0u, 2u, size == infinity), 1u, size > infinity);
}
