// Copies one operand into panels of ${width} lines of its edge. For every four steps of k, a panel
// holds one vec4 along k of each line. Line 4 l + c of a panel is vec4 ${lanes} c + l. So one lane
// gets the four lines of a block, which are neighbours where the edge is contiguous. Steps past the
// end of k are zeros; lines past the edge repeat the last one. A thread moves a block of 4 by 4.
// Workgroups are a grid of steps, panels and matrices.

@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) local: u32,
) {
  let steps = (p.size.z + 3u) / 4u;
  let lane = local % ${lanes}u;
  let step = group.x * ${64 / lanes}u + local / ${lanes}u;
  let panel = group.y;
  let matrix = group.z;
  if (step >= steps) { return; }
  let v = transpose(a_block(start_a(matrix), panel * ${width}u + lane * 4u, step * 4u));
  let at = ((matrix * groups.y + panel) * steps + step) * ${width * 4}u + lane * 4u;
  c_put4(at, v[0]);
  c_put4(at + ${width}u, v[1]);
  c_put4(at + ${width}u * 2u, v[2]);
  c_put4(at + ${width}u * 3u, v[3]);
}
