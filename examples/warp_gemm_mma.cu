// C = A * B with ldmatrix and mma.sync, by one warp: A is 64 x 64 and B 64 x 32, f16; C is 64 x 32,
// f32; all row-major.
// warp_gemm_mma.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
#include <cuda_fp16.h>

constexpr unsigned M = 64, N = 32, K = 64, STAGE = 32;

// Shared tiles hold 16-byte chunks of eight f16. ldmatrix reads eight chunks of one column of
// chunks, a row each; kept in plain order, rows 128 bytes apart would lie in the same banks. So
// chunk c of row r is put at c ^ s(r), with s such that any eight rows that follow one another
// (from a multiple of 8) fill all 32 banks: r % 8 where a row is 8 chunks long (A), and r / 2 % 4
// where it is 4 chunks long and two rows share the 128 bytes of the banks (B).
__device__ unsigned chunk_of_a(unsigned row, unsigned chunk) {
    return row * (K / 8) + (chunk ^ (row % 8));
}

__device__ unsigned chunk_of_b(unsigned row, unsigned chunk) {
    return row * (N / 8) + (chunk ^ (row / 2 % 4));
}

__device__ unsigned address(const uint4 *p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ void copy(uint4 *to, const half *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"(address(to)), "l"(__cvta_generic_to_global(from)) : "memory");
}

// Four 8x8 matrices: lane l gives the address of row l % 8 of matrix l / 8.
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

extern "C" __global__ void warp_gemm_mma(const half *a, const half *b, float *c) {
    __shared__ uint4 as[M * K / 8], bs[K * N / 8];
    unsigned lane = threadIdx.x;

    // two groups of copies, one for each half of k: the first half is multiplied while the second
    // one is on its way
    for (unsigned k = 0; k < K; k += STAGE) {
#pragma unroll 1
        for (unsigned i = lane; i < M * STAGE / 8; i += 32) {
            unsigned row = i / (STAGE / 8), chunk = k / 8 + i % (STAGE / 8);
            copy(&as[chunk_of_a(row, chunk)], a + row * K + chunk * 8);
        }
#pragma unroll 1
        for (unsigned i = lane; i < STAGE * N / 8; i += 32) {
            unsigned row = k + i / (N / 8), chunk = i % (N / 8);
            copy(&bs[chunk_of_b(row, chunk)], b + row * N + chunk * 8);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    float sum[M / 16][N / 8][4] = {};
#pragma unroll 1
    for (unsigned k = 0; k < K; k += 16) {
        // a wait covers the lane's own copies, __syncwarp() those of the other lanes
        if (k == 0) {
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            __syncwarp();
        } else if (k == STAGE) {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            __syncwarp();
        }
        // lanes 0-15 point at the left half of 16 rows of A, lanes 16-31 at the right half: the
        // order of the four registers of an A fragment
        unsigned x[M / 16][4], y[N / 16][4];
        for (unsigned i = 0; i < M / 16; i++)
            load(x[i], &as[chunk_of_a(i * 16 + lane % 16, k / 8 + lane / 16)]);
        // the same walk over 16 rows (k) of B and .trans give columns: registers 0 and 1 are the B
        // fragment of the left eight columns, 2 and 3 that of the right eight
        for (unsigned j = 0; j < N / 16; j++)
            load_transposed(y[j], &bs[chunk_of_b(k + lane % 16, j * 2 + lane / 16)]);
        for (unsigned i = 0; i < M / 16; i++)
            for (unsigned j = 0; j < N / 8; j++)
                multiply(sum[i][j], x[i], y[j / 2][j % 2 * 2], y[j / 2][j % 2 * 2 + 1]);
    }

    // lane l holds two neighbours in row l / 4 of each 16 x 8 of C, and two in row l / 4 + 8
    for (unsigned i = 0; i < M / 16; i++)
        for (unsigned j = 0; j < N / 8; j++) {
            float *at = c + (i * 16 + lane / 4) * N + j * 8 + lane % 4 * 2;
            *(float2 *)at = make_float2(sum[i][j][0], sum[i][j][1]);
            *(float2 *)(at + 8 * N) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
}
