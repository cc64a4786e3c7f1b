// For a batch of any number of dimensions.
  if (p.size.w == 1u) { return 0u; }
  let one = matrix / p.dims.x;
  let two = one / p.dims.y;
  let three = two / p.dims.z;
  let four = three / p.dims.w;
  return matrix % p.dims.x * inner.x + one % p.dims.y * inner.y + two % p.dims.z * inner.z
    + three % p.dims.w * inner.w + four % p.rest.x * outer.x + four / p.rest.x * outer.y;
