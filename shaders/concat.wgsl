// Puts up to four contiguous tensors side by side. y is seen as lines of `line` elements, one for
// each index before the axis. In each line tensor `i` fills the elements from `begins[i]` to
// `ends[i]`. One invocation writes one vec4 of y, which may have elements of several tensors.
// Elements that no tensor fills stay unchanged.

//# main
struct Params {
  begins: vec4<u32>,
  ends: vec4<u32>,
  offsets: vec4<u32>,
  line: u32,
  lines: u32,
  // Vec4s of a line that this launch writes.
  first_vec4: u32,
  vec4s: u32,
  // Elements of y.
  elements: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  let index = id.x + id.y * groups.x * 64u;
  let line = index / p.vec4s;
  if (line >= p.lines) {
    return;
  }
  let start = line * p.line + 4u * (p.first_vec4 + index - line * p.vec4s);
  write(start);
}

//# vec4s
// All boundaries are aligned to vec4s.
fn write(start: u32) {
  let line = start / p.line;
  let at = start - line * p.line;
  if (at >= p.begins.x && at < p.ends.x) {
    y_put4(start, a_get4(p.offsets.x + line * (p.ends.x - p.begins.x) + at - p.begins.x));
  } else if (at >= p.begins.y && at < p.ends.y) {
    y_put4(start, b_get4(p.offsets.y + line * (p.ends.y - p.begins.y) + at - p.begins.y));
  } else if (at >= p.begins.z && at < p.ends.z) {
    y_put4(start, c_get4(p.offsets.z + line * (p.ends.z - p.begins.z) + at - p.begins.z));
  } else if (at >= p.begins.w && at < p.ends.w) {
    y_put4(start, d_get4(p.offsets.w + line * (p.ends.w - p.begins.w) + at - p.begins.w));
  }
}

//# elements
fn write(start: u32) {
  // Most vec4s come from one tensor.
  let line = start / p.line;
  let at = start - line * p.line;
  if (at >= p.begins.x && at + 4u <= p.ends.x) {
    let i = p.offsets.x + line * (p.ends.x - p.begins.x) + at - p.begins.x;
    y_put4(start, vec4<T>(a_get(i), a_get(i + 1u), a_get(i + 2u), a_get(i + 3u)));
  } else if (at >= p.begins.y && at + 4u <= p.ends.y) {
    let i = p.offsets.y + line * (p.ends.y - p.begins.y) + at - p.begins.y;
    y_put4(start, vec4<T>(b_get(i), b_get(i + 1u), b_get(i + 2u), b_get(i + 3u)));
  } else if (at >= p.begins.z && at + 4u <= p.ends.z) {
    let i = p.offsets.z + line * (p.ends.z - p.begins.z) + at - p.begins.z;
    y_put4(start, vec4<T>(c_get(i), c_get(i + 1u), c_get(i + 2u), c_get(i + 3u)));
  } else if (at >= p.begins.w && at + 4u <= p.ends.w) {
    let i = p.offsets.w + line * (p.ends.w - p.begins.w) + at - p.begins.w;
    y_put4(start, vec4<T>(d_get(i), d_get(i + 1u), d_get(i + 2u), d_get(i + 3u)));
  } else {
    write_mixed(start);
  }
}

fn write_mixed(start: u32) {
  var v = held(start);
  for (var lane = 0u; lane < min(4u, p.elements - start); lane += 1u) {
    let e = start + lane;
    let line = e / p.line;
    let at = e - line * p.line;
    let is_own = is_lane(lane);
    if (at >= p.begins.x && at < p.ends.x) {
      let i = p.offsets.x + line * (p.ends.x - p.begins.x) + at - p.begins.x;
      v = select(v, vec4<T>(a_get(i)), is_own);
    } else if (at >= p.begins.y && at < p.ends.y) {
      let i = p.offsets.y + line * (p.ends.y - p.begins.y) + at - p.begins.y;
      v = select(v, vec4<T>(b_get(i)), is_own);
    } else if (at >= p.begins.z && at < p.ends.z) {
      let i = p.offsets.z + line * (p.ends.z - p.begins.z) + at - p.begins.z;
      v = select(v, vec4<T>(c_get(i)), is_own);
    } else if (at >= p.begins.w && at < p.ends.w) {
      let i = p.offsets.w + line * (p.ends.w - p.begins.w) + at - p.begins.w;
      v = select(v, vec4<T>(d_get(i)), is_own);
    }
  }
  y_put4(start, v);
}

//# first
// Later launches fill the other elements, so their values do not matter yet.
fn held(start: u32) -> vec4<T> { return vec4<T>(); }

//# more
fn held(start: u32) -> vec4<T> { return y_get4(start); }
