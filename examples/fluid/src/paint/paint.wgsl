// The app's own shader: the fluid's colours, read from the tensor.

@group(0) @binding(0) var<storage, read> dye: array<vec4f>;

// Cells across and down.
override WIDTH: u32;
override HEIGHT: u32;
// Does the target store numbers unchanged? Then the shader must encode them for a screen.
override ENCODES: bool;

struct Corner {
  @builtin(position) position: vec4f,
  // 0 to 1 across and down the viewport.
  @location(0) at: vec2f,
}

// One triangle that covers the viewport.
@vertex
fn vertex(@builtin(vertex_index) index: u32) -> Corner {
  let corner = 2.0 * vec2f(f32(index & 1u), f32(index >> 1u));
  return Corner(vec4f(corner * 2.0 - 1.0, 0.0, 1.0), vec2f(corner.x, 1.0 - corner.y));
}

fn cell(at: vec2u) -> vec3f {
  let size = vec2u(WIDTH, HEIGHT);
  let inside = min(at, size - 1u);
  return dye[inside.y * size.x + inside.x].rgb;
}

fn encoded(linear: vec3f) -> vec3f {
  let low = linear * 12.92;
  let high = 1.055 * pow(linear, vec3f(1.0 / 2.4)) - 0.055;
  return select(high, low, linear <= vec3f(0.0031308));
}

@fragment
fn fragment(corner: Corner) -> @location(0) vec4f {
  let size = vec2u(WIDTH, HEIGHT);
  let point = clamp(corner.at * vec2f(size) - 0.5, vec2f(0.0), vec2f(size - 1u));
  let low = vec2u(point);
  let part = fract(point);
  let upper = mix(cell(low), cell(low + vec2u(1u, 0u)), part.x);
  let lower = mix(cell(low + vec2u(0u, 1u)), cell(low + vec2u(1u, 1u)), part.x);
  let thick = mix(upper, lower, part.y);
  let light = vec3f(0.004, 0.006, 0.012) + 1.0 - exp(-1.6 * thick);
  let shown = clamp(light, vec3f(0.0), vec3f(1.0));
  return vec4f(select(shown, encoded(shown), ENCODES), 1.0);
}
