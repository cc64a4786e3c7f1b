// Workgroups are numbered down the rows of C first.
  let tiles_n = (p.size.y + ${tile_n}u - 1u) / ${tile_n}u;
  let tiles_m = (p.size.x + ${tile_m}u - 1u) / ${tile_m}u;
  let tile = linear(group, groups);
  let matrix = tile / (tiles_m * tiles_n);
  if (matrix >= p.size.w) { return; }
  let tile_m = tile % tiles_m;
  let tile_n = tile / tiles_m % tiles_n;
