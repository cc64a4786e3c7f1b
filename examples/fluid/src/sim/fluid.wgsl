// A step of the fluid: plain WGSL that knows nothing of lapidary. Each entry point uses some of the
// bindings; a call binds those by name.

struct Step {
    size: vec2<u32>,
    number: u32,
    // Of what stirs, in cells.
    radius: f32,
    at: vec2<f32>,
    push: vec2<f32>,
    // Red, green, blue, heat.
    dye: vec4<f32>,
}

@group(0) @binding(0) var<storage, read> velocity: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read> dye: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> divergence: array<f32>;
@group(0) @binding(3) var<storage, read> pressure: array<f32>;
@group(0) @binding(4) var<storage, read_write> velocity_out: array<vec2<f32>>;
@group(0) @binding(5) var<storage, read_write> dye_out: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> divergence_out: array<f32>;
@group(0) @binding(7) var<storage, read_write> pressure_out: array<f32>;
@group(0) @binding(8) var<uniform> step: Step;

// Of a cell, or of the nearest one inside.
fn index(cell: vec2<i32>) -> u32 {
    let inside = clamp(cell, vec2<i32>(0), vec2<i32>(step.size) - 1);
    return u32(inside.y) * step.size.x + u32(inside.x);
}

// The four cells around a point, and the point's place between them.
struct Around {
    cells: vec4<u32>,
    part: vec2<f32>,
}

fn around(point: vec2<f32>) -> Around {
    let inside = clamp(point, vec2<f32>(0.0), vec2<f32>(step.size - 1u));
    let corner = vec2<i32>(floor(inside));
    return Around(
        vec4<u32>(
            index(corner), index(corner + vec2(1, 0)),
            index(corner + vec2(0, 1)), index(corner + vec2(1, 1)),
        ),
        fract(inside),
    );
}

fn velocity_at(point: vec2<f32>) -> vec2<f32> {
    let a = around(point);
    let upper = mix(velocity[a.cells.x], velocity[a.cells.y], a.part.x);
    let lower = mix(velocity[a.cells.z], velocity[a.cells.w], a.part.x);
    return mix(upper, lower, a.part.y);
}

fn dye_at(point: vec2<f32>) -> vec4<f32> {
    let a = around(point);
    let upper = mix(dye[a.cells.x], dye[a.cells.y], a.part.x);
    let lower = mix(dye[a.cells.z], dye[a.cells.w], a.part.x);
    return mix(upper, lower, a.part.y);
}

// The rotation at the cell.
fn curl(cell: vec2<i32>) -> f32 {
    let across = velocity[index(cell + vec2(1, 0))].y - velocity[index(cell - vec2(1, 0))].y;
    let down = velocity[index(cell + vec2(0, 1))].x - velocity[index(cell - vec2(0, 1))].x;
    return 0.5 * (across - down);
}

// Adds back the small eddies that the grid damps (Fedkiw, Stam and Jensen, 2001).
fn confinement(cell: vec2<i32>) -> vec2<f32> {
    let slope = vec2(
        abs(curl(cell + vec2(1, 0))) - abs(curl(cell - vec2(1, 0))),
        abs(curl(cell + vec2(0, 1))) - abs(curl(cell - vec2(0, 1))),
    );
    let towards = slope / (length(slope) + 1e-4);
    return 0.25 * curl(cell) * vec2(towards.y, -towards.x);
}

fn nearness(point: vec2<f32>, centre: vec2<f32>, radius: f32) -> f32 {
    let away = (point - centre) / radius;
    return exp(-dot(away, away));
}

// Moves everything along with the fluid. Heat rises; burners and the hand add to it.
@compute @workgroup_size(8, 8)
fn advect(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= step.size) { return; }
    let here = vec2<f32>(id.xy);
    let cell = vec2<i32>(id.xy);
    let i = index(cell);
    let halfway = here - 0.5 * velocity[i];
    let origin = here - velocity_at(halfway);
    var moved = velocity_at(origin) * 0.9995 + confinement(cell);
    var stuff = dye_at(origin) * vec4(vec3(0.9975), 0.99);

    let size = vec2<f32>(step.size);
    for (var burner = 0; burner < 3; burner++) {
        let turn = 2.0943951 * f32(burner);
        let sway = 0.03 * sin(0.021 * f32(step.number) + 2.0 * turn);
        let centre = size * vec2(0.25 + 0.25 * f32(burner) + sway, 0.93);
        let near = nearness(here, centre, size.y / 28.0);
        let wave = 0.5 + 0.5 * cos(turn + 0.004 * f32(step.number) + vec3(0.0, 2.1, 4.2));
        stuff += near * vec4(0.10 * wave * wave, 0.12);
    }
    moved.y -= 0.05 * min(stuff.w, 2.0) * size.y / 256.0;

    let hand = nearness(here, step.at, step.radius);
    stuff += hand * step.dye;
    moved += hand * step.push;

    velocity_out[i] = clamp(moved, vec2(-24.0), vec2(24.0));
    dye_out[i] = clamp(stuff, vec4(0.0), vec4(8.0));
}

// Nothing flows through the walls.
fn through(cell: vec2<i32>, along: vec2<i32>) -> vec2<f32> {
    let next = cell + along;
    let v = velocity[index(next)];
    return select(v, -v, any(next < vec2(0)) || any(next >= vec2<i32>(step.size)));
}

@compute @workgroup_size(8, 8)
fn diverge(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= step.size) { return; }
    let cell = vec2<i32>(id.xy);
    let across = through(cell, vec2(1, 0)).x - through(cell, vec2(-1, 0)).x;
    let down = through(cell, vec2(0, 1)).y - through(cell, vec2(0, -1)).y;
    divergence_out[index(cell)] = 0.5 * (across + down);
}

fn around_of_pressure(cell: vec2<i32>) -> vec4<f32> {
    return vec4(
        pressure[index(cell - vec2(1, 0))], pressure[index(cell + vec2(1, 0))],
        pressure[index(cell - vec2(0, 1))], pressure[index(cell + vec2(0, 1))],
    );
}

// A round of Jacobi's method.
@compute @workgroup_size(8, 8)
fn relax(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= step.size) { return; }
    let cell = vec2<i32>(id.xy);
    let i = index(cell);
    pressure_out[i] = 0.25 * (dot(around_of_pressure(cell), vec4(1.0)) - divergence[i]);
}

@compute @workgroup_size(8, 8)
fn project(@builtin(global_invocation_id) id: vec3<u32>) {
    if any(id.xy >= step.size) { return; }
    let cell = vec2<i32>(id.xy);
    let i = index(cell);
    let p = around_of_pressure(cell);
    velocity_out[i] = velocity[i] - 0.5 * vec2(p.y - p.x, p.w - p.z);
}
