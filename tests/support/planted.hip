// Kernels with one planted bug each; the comment BUG is on the line that a finding has to name.
#define N 256
__global__ void scan_race(const int *in, int *out) {
    __shared__ int part[N];
    int t = threadIdx.x;
    part[t] = in[t];
    __syncthreads();
    for (int off = 1; off < N; off *= 2) {
        int left = t >= off ? part[t - off] : 0;
        part[t] += left;  // BUG race
        __syncthreads();
    }
    out[t] = part[t];
}
__global__ void transpose_no_barrier(const float *in, float *out) {
    __shared__ float tile[16][17];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    tile[y][x] = in[y * 16 + x];
    out[y * 16 + x] = tile[x][y];  // BUG race
}
__global__ void stencil_oob_read(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + in[i + 1];  // BUG out-of-bounds
}
__global__ void histogram_oob_write(const int *keys, int *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        bins[keys[i]] = 1;  // BUG out-of-bounds
}
__global__ void reduce_lds_oob(const float *in, float *out) {
    __shared__ float part[N];
    int t = threadIdx.x;
    part[t + 64] = in[t];  // BUG out-of-bounds
    __syncthreads();
    out[t] = part[t];
}
__global__ void softmax_uninit(const float *in, float *out, int n) {
    __shared__ float total[4];
    int t = threadIdx.x;
    if (t == 0)
        total[0] = 1;
    __syncthreads();
    out[t] = in[t] / total[t / 64];  // BUG uninitialized
}
__global__ void count_groups(int *count) {
    if (threadIdx.x == 0)
        count[0] = count[0] + 1;  // BUG race
}
__global__ void producer_consumer(int *flag, int *data, int *out) {
    if (threadIdx.x)
        return;
    if (blockIdx.x == 0) {
        data[0] = 42;  // BUG race
        __hip_atomic_store(flag, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    } else {
        while (!__hip_atomic_load(flag, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)) {
        }
        out[0] = data[0];
    }
}
__global__ void index_overflow(const float *in, float *out, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int at = row * columns * 65536;
    if (at < rows)
        out[row & 63] = in[at];  // BUG out-of-bounds
}
__global__ void variance_nan(const float *in, float *out, int n) {
    int t = threadIdx.x;
    float mean = in[t] * 0.5f;
    out[t] = sqrtf(mean * mean - in[t] * in[t]);  // BUG nan
}
__global__ void log_zero(const float *p, float *out) {
    int t = threadIdx.x;
    out[t] = p[t] * logf(p[t]);  // BUG nan
}
__global__ void asm_no_wait(const float *in, float *out) {
    float v;
    const float *at = in + threadIdx.x;
    asm volatile("global_load_dword %0, %1, off" : "=v"(v) : "v"(at));
    out[threadIdx.x] = v * 2;  // BUG missing-wait
}
__global__ void matmul_swapped(const float *a, const float *b, float *c, int n, int m) {
    int row = threadIdx.x / 8, column = threadIdx.x % 8;
    float sum = 0;
    for (int k = 0; k < m; k++)
        sum += a[row * m + k] * b[column * m + k * n];  // BUG out-of-bounds
    c[row * 8 + column] = sum;
}
__global__ void ring_lds(const float *in, float *out, int n) {
    __shared__ float ring[2][64];
    int t = threadIdx.x;
    for (int k = 0; k < n; k++) {
        ring[k & 1][t & 63] = in[t + k];  // BUG race
        __syncthreads();
        out[t] += ring[k & 1][(t + 1) & 63];
    }
}
__device__ float blend(const float *w, int i) {
    return w[i] * 2 + w[i + 128];  // BUG out-of-bounds
}
__global__ void in_a_function(const float *w, float *out) {
    out[threadIdx.x] = blend(w, threadIdx.x);
}
__global__ void bfs_private(const int *in, int *out, int n) {
    int stack[64], top = 0, t = threadIdx.x;
    for (int k = 0; k < n; k++)
        stack[top++] = in[(t + k) & 63];  // BUG out-of-bounds
    int s = 0;
    while (top)
        s += stack[--top] * top;
    out[t] = s;
}
__global__ void uninit_private(const int *in, int *out, int n) {
    int window[64];
    int t = threadIdx.x;
    for (int k = 0; k < n; k++)
        window[in[k] & 63] = k;
    out[t] = window[in[t] & 63];  // BUG uninitialized
}
__global__ void uneven_barriers(const float *in, float *out) {
    __shared__ float part[N];
    int t = threadIdx.x;
    part[t] = in[t];
    for (int k = 0; k < 1 + t / 64 * 2; k++)
        __syncthreads();  // BUG barrier
    if (t < 64)
        __syncthreads();
    out[t] = part[t ^ 64];
}
__global__ void skipped_barrier(const float *in, float *out) {
    __shared__ float part[N];
    int t = threadIdx.x;
    part[t] = in[t];
    if (t % 3 == 0)
        __syncthreads();  // BUG barrier
    out[t] = part[t];
}
__global__ void freed(const float *in, float *out) {
    out[threadIdx.x] = in[threadIdx.x];  // BUG use-after-free
}
__global__ void half_copied(const float *in, float *out) {
    out[threadIdx.x] = in[threadIdx.x] * 2;  // BUG uninitialized
}
__global__ void __launch_bounds__(64) small_blocks(const float *in, float *out) {
    out[threadIdx.x] = in[threadIdx.x];
}
