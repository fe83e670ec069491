// C = A * B in 128 x 128 tiles, the size of a library's kernel: a CTA of four warps, each 64 x 64,
// k in steps of 64. f16 inputs, f32 result, row-major; rows, n and k are multiples of the tile.
// gemm_tile.ptx: nvcc 13.0 -arch=compute_80 -ptx, with a header for ptxsim put in front.
#include <cuda_fp16.h>

constexpr unsigned M = 128, N = 128, K = 64, WARP = 64;

// Tiles are kept in chunks of 16 bytes, chunk c of row r at c ^ r % 8: the eight rows that ldmatrix
// reads at a time then lie in different banks.
__device__ unsigned chunk_at(unsigned row, unsigned chunk, unsigned width) {
    return row * (width / 8) + (chunk ^ (row % 8));
}

__device__ unsigned address(const uint4 *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy(uint4 *to, const half *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(address(to)), "l"(__cvta_generic_to_global(from)) : "memory");
}

__device__ void load(unsigned (&x)[4], const uint4 *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address(from)) : "memory");
}

__device__ void load_transposed(unsigned (&x)[4], const uint4 *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address(from)) : "memory");
}

__device__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void gemm_tile(const half *a, const half *b, float *c, unsigned n,
                                     unsigned k) {
    __shared__ uint4 as[M * K / 8], bs[K * N / 8];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned top = warp / 2 * WARP, left = warp % 2 * WARP;
    a += blockIdx.y * M * k;
    b += blockIdx.x * N;
    c += blockIdx.y * M * n + blockIdx.x * N;

    float sum[WARP / 16][WARP / 8][4] = {};
#pragma unroll 1
    for (unsigned t = 0; t < k; t += K) {
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < M * K / 8; i += 128) {
            unsigned row = i / (K / 8), chunk = i % (K / 8);
            copy(&as[chunk_at(row, chunk, K)], a + row * k + t + chunk * 8);
        }
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < K * N / 8; i += 128) {
            unsigned row = i / (N / 8), chunk = i % (N / 8);
            copy(&bs[chunk_at(row, chunk, N)], b + (t + row) * n + chunk * 8);
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
#pragma unroll 1
        for (unsigned s = 0; s < K; s += 16) {
            unsigned x[WARP / 16][4], y[WARP / 16][4];
            for (unsigned i = 0; i < WARP / 16; i++)
                load(x[i], &as[chunk_at(top + i * 16 + lane % 16, s / 8 + lane / 16, K)]);
            for (unsigned j = 0; j < WARP / 16; j++)
                load_transposed(
                    y[j], &bs[chunk_at(s + lane % 16, left / 8 + j * 2 + lane / 16, N)]);
            for (unsigned i = 0; i < WARP / 16; i++)
                for (unsigned j = 0; j < WARP / 8; j++)
                    multiply(sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
        }
        __syncthreads();
    }
    for (unsigned i = 0; i < WARP / 16; i++)
        for (unsigned j = 0; j < WARP / 8; j++) {
            float *at = c + (top + i * 16 + lane / 4) * n + left + j * 8 + lane % 4 * 2;
            *(float2 *)at = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)(at + 8 * n) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
}
