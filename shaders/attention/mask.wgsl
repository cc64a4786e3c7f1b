// Scales and masks the scores of ${keys} keys. Scores past the last key are excluded and, if the
// mask is causal, also those past the query's own position.

//# mask
    //% for t in 0..keys
    s_${t} *= scale;
    //% end
    //% if is_given
    //%   for v in 0..keys / 4
    {
      //%     for r in 0..mask_rows
      //%       if vec4s && one_row
      let m_${r} = m_get4(m_start + min(key + ${v * 4}u, last_key & ~3u));
      //%       else if vec4s
      let m_${r} = m_get4(m_start + min(row + ${r}u, last_row) * p.m.w + min(key + ${v * 4}u, last_key & ~3u));
      //%       else
      //%         if one_row
      let at_${r} = m_start;
      //%         else
      let at_${r} = m_start + min(row + ${r}u, last_row) * p.m.w;
      //%         end
      let m_${r} = vec4($join(i in 0..4, m_get(at_${r} + min(key + ${v * 4 + i}u, last_key) * p.rest.x)));
      //%       end
      //%     end
      //%     for i in 0..4
      //%       let t = v * 4 + i
      //%       if is_bool
      s_${t} = select(${vector}(below), s_${t}, $splat($join(r in 0..mask_rows, m_${r}.$lane(i))) != ${bits}());
      //%       else
      s_${t} += $splat($join(r in 0..mask_rows, m_${r}.$lane(i)));
      //%       end
      //%     end
    }
    //%   end
    //% end
    if (key + ${keys}u > p.size.y) {
      //% for t in 0..keys
      s_${t} = select(${vector}(below), s_${t}, key + ${t}u <= last_key);
      //% end
    }
    //% if is_causal
    if (key + ${keys - 1}u > p.rest.z + first_row) {
      //%   if width == 1
      let own = p.rest.z + row;
      //%   else
      let own = p.rest.z + vec${width}(row, $join(r in 1..width, row + ${r}u));
      //%   end
      //%   for t in 0..keys
      s_${t} = select(${vector}(below), s_${t}, ${bits}(key + ${t}u) <= own);
      //%   end
    }
    //% end
