enable subgroups; // sums
struct Row { at: u32, values: array<vec4<f32>, 3> }
alias Rows = array<Row>;
const MANY: u32 = 4u * (2u + 6u);
@group(0) @binding(3) var<storage, read_write> rows: Rows; /* not /* this */ one */
@group(0) // the input
@binding(1) var<storage, read> x: array<u32>;
var<workgroup> shared_: array<u32, MANY>;
fn at(i: u32) -> u32 { if i < arrayLength(&x) { return x[i]; } else if i == 7u { return 1u; } return 0u; }
@compute @workgroup_size(MANY, 1, 1)
fn main(@builtin(local_invocation_id) id: vec3<u32>) {
    var sum = 0u;
    for (var i = id.x; i < arrayLength(&rows); i += MANY) { sum += at(i) << 1u; }
    shared_[id.x] = sum;
    workgroupBarrier();
    switch id.x { case 0u, 1u: { rows[0].at = shared_[1]; } default: { } }
    rows[0].values[1].x = select(-1.5e-3, f32(sum), sum > 2u && sum <= 9u);
}
