// The app's own shader: colours the waves, which it reads from the tensor.

@group(0) @binding(0) var<storage, read> waves: array<f32>;
@group(0) @binding(1) var<storage, read> map: array<f32>;

override WIDTH: u32;

// One triangle that covers the picture.
@vertex
fn vertex(@builtin(vertex_index) index: u32) -> @builtin(position) vec4f {
  let corner = vec2f(f32(index & 1u), f32(index >> 1u));
  return vec4f(corner * 4.0 - 1.0, 0.0, 1.0);
}

@fragment
fn fragment(@builtin(position) position: vec4f) -> @location(0) vec4f {
  let index = u32(position.y) * WIDTH + u32(position.x);
  if map[index] == 0.0 {
    return vec4f(0.8, 0.75, 0.66, 1.0);
  }
  let height = waves[index];
  let calm = vec3f(0.002, 0.006, 0.02);
  let crest = vec3f(0.10, 0.55, 1.0);
  let trough = vec3f(0.85, 0.12, 0.05);
  let strength = 1.0 - exp(-2.5 * abs(height));
  return vec4f(mix(calm, select(trough, crest, height > 0.0), strength), 1.0);
}
