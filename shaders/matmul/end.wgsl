// The epilogue of a product: applied before its elements are stored.

//# end

fn finish(at: u32, column: u32, product: vec4<f32>) -> vec4<f32> {
  var y = product;
  //% if scale
  y *= bitcast<f32>(p.more.x);
  //% end
  //% if columns
  y *= $vec4(scales, p.more.w);
  //% end
  //% if bias
  y += $vec4(bias, p.more.y);
  //% end
  //% if activation
  y = op(y);
  //% end
  //% if residual
  y += $vec4(residual, p.more.z + at);
  //% end
  return y;
}
