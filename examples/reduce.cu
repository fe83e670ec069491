// Sum of n integers: shuffles within a warp, shared memory between warps, one atomic a block.
// reduce.ptx: nvcc 13.0 -arch=compute_80 -ptx, with the header for ptxsim put in front.
extern "C" __global__ void reduce(const int *x, int *sum, int n) {
    __shared__ int partial[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? x[i] : 0;
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? partial[lane] : 0;
        for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
        if (lane == 0) atomicAdd(sum, v);
    }
}
