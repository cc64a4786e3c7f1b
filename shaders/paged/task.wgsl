// The task of a workgroup, in both variants of attention: its rows, keys, heads and block.
  let task = p.part.x + group.x;
  let words = p.page.z + 8u * task;
  let first_row = t_get(words);
  let last_row = t_get(words + 1u) - 1u;
  let position = t_get(words + 2u);
  let first_page = t_get(words + 3u);
  let pages = t_get(words + 4u);
  let last_page = first_page + pages - 1u;
  let first_key = t_get(words + 5u);
  let end_key = min(first_key + pages * ${tokens}u, position + last_row + 1u);
  let begin_key = position - min(position, p.rest.z);
  let is_first = t_get(p.page.w) == 0u;
  let head = group.y / p.heads.w;
  let first_head = head * p.heads.z + group.y % p.heads.w * ${heads}u;
  let last_head = head * p.heads.z + p.heads.z - 1u;
  let block = p.page.x + head * p.page.y;
  let below = bitcast<f32>(0xff800000u | (p.heads.x & 0u));
