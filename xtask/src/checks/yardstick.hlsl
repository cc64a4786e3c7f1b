// A fixed product in registers. FXC's time for it shows how fast this machine is.
ByteAddressBuffer a : register(t0);
ByteAddressBuffer b : register(t1);
RWByteAddressBuffer c : register(u0);
cbuffer p : register(b0) { uint4 size; }

float at(ByteAddressBuffer from, uint word)
{
    return word < size.w ? asfloat(from.Load(word * 4u)) : 0.0;
}

[numthreads(8, 8, 1)]
void main(uint3 thread : SV_DispatchThreadID)
{
    float4 sums[8];
    uint row, step;
    [unroll] for (row = 0u; row < 8u; row++) sums[row] = 0.0;
    for (uint k = 0u; k < size.z; k += 4u) {
        [unroll] for (step = 0u; step < 4u; step++) {
            uint start = (k + step) * size.x + thread.x * 4u;
            float4 y = float4(at(b, start), at(b, start + 1u), at(b, start + 2u), at(b, start + 3u));
            [unroll] for (row = 0u; row < 8u; row++)
                sums[row] = mad(at(a, (thread.y * 8u + row) * size.z + k + step), y, sums[row]);
        }
    }
    [unroll] for (row = 0u; row < 8u; row++)
        c.Store4(((thread.y * 8u + row) * size.x + thread.x * 4u) * 4u, asuint(sums[row]));
}
