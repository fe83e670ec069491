// C = A * B for row-major n x n matrices, n a multiple of 16, through 16 x 16 shared tiles.
// sgemm.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
#define TILE 16

extern "C" __global__ void sgemm(const float *a, const float *b, float *c, int n) {
    __shared__ float at[TILE][TILE], bt[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * TILE + y, column = blockIdx.x * TILE + x;
    float sum = 0;
    for (int first = 0; first < n; first += TILE) {
        at[y][x] = a[row * n + first + x];
        bt[y][x] = b[(first + y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += at[y][k] * bt[k][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}
