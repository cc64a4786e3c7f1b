// Functions of both variants of attention.

// The place of a query's state. No place for a head that another group has.
fn state_at(task: u32, query: u32, first_head: u32, last_head: u32) -> u32 {
  let head = first_head + query % ${heads}u;
  let at = ((task * ${rows}u + query / ${heads}u) * p.heads.x + head) * ${size + 4}u;
  return select(at, ${absent}u, head > last_head);
}

//% if is_capped
// c · tanh(x / c). Near 0, where a difference from 1 would leave nothing of x, by its series. Far
// out, where a quotient of exponentials would overflow, it is ±c.
fn capped(x: f32) -> f32 {
  let t = x * p.numbers.z;
  let size = exp(2.0 * min(abs(t), 10.0));
  let v = p.numbers.y * (1.0 - 2.0 / (size + 1.0));
  let near = x * fma(t * t, fma(t * t, 0.13333334, -0.33333334), 1.0);
  let all = select(select(v, -v, x < 0.0), near, abs(t) < 0.1);
  return select(all, x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

//% end
// WGSL does not define `exp` of NaN.
fn exp_kept(x: f32) -> f32 {
  return select(exp(x), x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}
