// The step of an optimizer. `k` has two words for the whole step in its first vec4, then a vec4 for
// each parameter. That has the number of its updates, and 1 / (1 - beta1^number), 1 / √(1 -
// beta2^number). `members` parameters x0, x1, … with gradients g0, g1, … share a launch. All
// tensors are row-major and begin at 0.

//# count
// Decides whether the step is done, and counts it for each parameter that has a gradient.
struct Params {
  // A bit for each parameter.
  masks: array<vec4<u32>, 6>,
  // The first parameter of this launch, and how many it has.
  first: u32,
  count: u32,
  // ln beta1, ln beta2.
  logs: vec2<f32>,
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let i = id.x;
  let is_done = is_step_done();
  if (i < p.count) {
    let bit = (p.masks[i / 128u][(i / 32u) % 4u] >> (i % 32u)) & 1u;
    let at = 4u + 4u * (p.first + i);
    let count = k_get(at) + select(0u, bit, is_done);
    // 1 - beta^count, without the digits that the difference would lose.
    let corrections = -expm1_of(f32(count) * p.logs.xyxy);
    k_put(at, count);
    k_put(at + 1u, bitcast<u32>(1.0 / corrections.x));
    k_put(at + 2u, bitcast<u32>(1.0 / sqrt(corrections.y)));
  } else if (i == p.count) {
    k_put(0u, select(0u, 1u, is_done));
    k_put(1u, bitcast<u32>(factor()));
  }
}

//# plain
fn is_step_done() -> bool { return true; }
fn factor() -> f32 { return 1.0; }

//# checked
// The gradients were found to be finite or not, and have no scale any more.
fn is_step_done() -> bool { return f_get(0u) == 0.0; }
fn factor() -> f32 { return 1.0; }

//# scaled
// As above, and the gradients are to be divided by the scale c.
fn is_step_done() -> bool { return f_get(0u) == 0.0; }
fn factor() -> f32 { return 1.0 / c_get(0u); }

//# update
struct Params {
  // Elements of each parameter. The last word is the distance from a first moment to its second.
  lens: vec4<u32>,
  more_lens: vec4<u32>,
  // The first element of each in the state s.
  starts: vec4<u32>,
  more_starts: vec4<u32>,
  // The number of each among all parameters.
  numbers: vec4<u32>,
  more_numbers: vec4<u32>,
  // SGD: rate, momentum, 1 - dampening, weight decay.
  // AdamW: rate, 1 - rate * weight decay, 1 - beta1, beta2.
  a: vec4<f32>,
  // AdamW: 1 - beta2, epsilon.
  b: vec4<f32>,
}

// One invocation updates one vec4. The parameters follow each other in whole vec4s.
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  // A skipped step changes nothing.
  if (k_get(0u) == 0u) {
    return;
  }
  let factor = vec4<f32>(bitcast<f32>(k_get(1u)));
  var at = 4u * (id.x + id.y * groups.x * 64u);
//% for j in 0..members
  if (at < $lens(${j})) {
    let g = inside(g${j}_get4(at) * factor, at, $lens(${j}));
    x${j}_put4(at, updated(x${j}_get4(at), g, $starts(${j}) + at, 4u + 4u * $numbers(${j})));
    return;
  }
  at -= ($lens(${j}) + 3u) & 0xfffffffcu;
//% end
}

// Elements beyond the end count as 0, so that the state is always a number there.
fn inside(v: vec4<f32>, at: u32, len: u32) -> vec4<f32> {
  return select(vec4<f32>(0.0), v, vec4<u32>(at) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(len));
}

//# sgd
// The word `own` of k is the number of updates, with this one.
fn updated(x: vec4<f32>, g: vec4<f32>, at: u32, own: u32) -> vec4<f32> {
  var step = fma(vec4<f32>(p.a.w), x, g);
//% if has_momentum
  // The first gradient is the momentum.
  let further = fma(vec4<f32>(p.a.y), s_get4(at), p.a.z * step);
  let momentum = select(further, step, k_get(own) == 1u);
  s_put4(at, momentum);
//% if is_nesterov
  step = fma(vec4<f32>(p.a.y), momentum, step);
//% else
  step = momentum;
//% end
//% end
  return fma(vec4<f32>(-p.a.x), step, x);
}

//# adamw
// Behind the word `own` of k are the factors that correct the moments.
fn updated(x: vec4<f32>, g: vec4<f32>, at: u32, own: u32) -> vec4<f32> {
  let first = lerp_of(s_get4(at), g, vec4<f32>(p.a.z));
  s_put4(at, first);
  let second = fma(p.b.x * g, g, p.a.w * ${second}_get4(${second_at}));
  ${second}_put4(${second_at}, second);
  let size = fma(sqrt(second), vec4<f32>(bitcast<f32>(k_get(own + 2u))), vec4<f32>(p.b.y));
  let rate = p.a.x * bitcast<f32>(k_get(own + 1u));
  return fma(vec4<f32>(-rate), first / size, p.a.y * x);
}
