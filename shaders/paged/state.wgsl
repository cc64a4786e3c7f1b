// Functions of both variants of attention.

// The place of a query's state. No place for a head that another group has.
fn state_at(task: u32, query: u32, first_head: u32, last_head: u32) -> u32 {
  let head = first_head + query % ${heads}u;
  let at = ((task * ${rows}u + query / ${heads}u) * p.heads.x + head) * ${size + 4}u;
  return select(at, ${absent}u, head > last_head);
}

//% if is_capped
// c · tanh(x / c). Far out, where a quotient of exponentials would overflow, it is ±c.
fn capped(x: f32) -> f32 {
  let size = exp(2.0 * min(abs(x * p.numbers.z), 10.0));
  let v = p.numbers.y * (1.0 - 2.0 / (size + 1.0));
  return select(select(v, -v, x < 0.0), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

//% end
// WGSL does not define `exp` of NaN.
fn exp_kept(x: f32) -> f32 {
  return select(exp(x), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}
