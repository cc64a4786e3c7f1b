// Words of y, four an invocation: one word again and again, or those of x.

//# head
struct Params { w0: vec4<u32> }

@compute @workgroup_size(64)
fn main(
  @builtin(global_invocation_id) id: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
) {
  let first = 4u * (id.y * groups.x * 64u + id.x);
  for (var i = first; i < min(first + 4u, p.w0.x); i++) { y_put(i, word(i)); }
}

//# fill
// p.w0: how many words, and which one.
fn word(i: u32) -> u32 { return p.w0.y; }

//# copy
// p.w0: how many words, and which one of x is the first.
fn word(i: u32) -> u32 { return x_get(p.w0.y + i); }
