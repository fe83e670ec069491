// C = A * B with nvcuda::wmma, by one warp: A is 64 x 64 and B 64 x 32, f16; C is 64 x 32, f32.
// warp_gemm_wmma.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
#include <mma.h>

using namespace nvcuda;

constexpr unsigned M = 64, N = 32, K = 64;
// A row in shared memory has 16 elements more than the tile. Without them rows of A would lie 128
// bytes apart, all in the same banks; so each begins 32 bytes further than the one before, and four
// rows of a 16 x 16 tile, 32 bytes of each, fill the banks. Less would not do: wmma.load wants rows
// at multiples of 32 bytes, the size of a fragment.
constexpr unsigned ROW_A = K + 16, ROW_B = N + 16;

extern "C" __global__ void warp_gemm_wmma(const half *a, const half *b, float *c) {
    __shared__ __align__(32) half as[M * ROW_A], bs[K * ROW_B];
    unsigned lane = threadIdx.x;

    // eight elements at a time
#pragma unroll 1
    for (unsigned i = lane; i < M * K / 8; i += 32) {
        unsigned row = i / (K / 8), column = i % (K / 8) * 8;
        *(uint4 *)&as[row * ROW_A + column] = *(const uint4 *)&a[row * K + column];
    }
#pragma unroll 1
    for (unsigned i = lane; i < K * N / 8; i += 32) {
        unsigned row = i / (N / 8), column = i % (N / 8) * 8;
        *(uint4 *)&bs[row * ROW_B + column] = *(const uint4 *)&b[row * N + column];
    }
    __syncwarp();

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[M / 16][N / 16];
    for (unsigned i = 0; i < M / 16; i++)
        for (unsigned j = 0; j < N / 16; j++) wmma::fill_fragment(sum[i][j], 0.0f);
#pragma unroll 1
    for (unsigned k = 0; k < K; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x[M / 16];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y[N / 16];
        for (unsigned i = 0; i < M / 16; i++)
            wmma::load_matrix_sync(x[i], &as[i * 16 * ROW_A + k], ROW_A);
        for (unsigned j = 0; j < N / 16; j++)
            wmma::load_matrix_sync(y[j], &bs[k * ROW_B + j * 16], ROW_B);
        for (unsigned i = 0; i < M / 16; i++)
            for (unsigned j = 0; j < N / 16; j++) wmma::mma_sync(sum[i][j], x[i], y[j], sum[i][j]);
    }
    for (unsigned i = 0; i < M / 16; i++)
        for (unsigned j = 0; j < N / 16; j++)
            wmma::store_matrix_sync(c + i * 16 * N + j * 16, sum[i][j], N, wmma::mem_row_major);
}
