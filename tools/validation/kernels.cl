// Stencils, a norm, transposes and streams of which times were published: what each computes, written here.
#define AT get_global_id
#define WIDE kernel __attribute__((amdgpu_flat_work_group_size(1, 1024)))

// A Laplacian of seven points inside a box, double.
kernel void seven_points(global double *f, global const double *u, int nx, int ny, int nz,
                         double x, double y, double z, double c) {
    int i = AT(0), j = AT(1), k = AT(2), slice = nx * ny;
    if (i == 0 || i >= nx - 1 || j == 0 || j >= ny - 1 || k == 0 || k >= nz - 1) return;
    size_t at = i + (size_t)nx * j + (size_t)slice * k;
    f[at] = c * u[at] + x * (u[at - 1] + u[at + 1]) + y * (u[at - nx] + u[at + nx]) + z * (u[at - slice] + u[at + slice]);
}

// One of five points in a plane, double; what it stores is not kept in caches.
kernel void five_points(global double *f, global const double *u, int width, int last, double x, double y) {
    int at = AT(0);
    if (at > last || at <= width) return;
    double twice = 2 * u[at];
    __builtin_nontemporal_store(x * (twice - u[at - 1] - u[at + 1]) + y * (twice - u[at - width] - u[at + width]), f + at);
}

// A Jacobi step and its residual, double.
kernel void update(global double *u, global double *residual, global const double *wanted, global const double *got,
                   double factor, int n) {
    int at = AT(0);
    if (at >= n) return;
    double difference = wanted[at] - got[at];
    residual[at] = difference;
    u[at] += factor * difference;
}

// Sums of products, one a workgroup, double.
WIDE void dot_products(global double *sums, global const double *a, global const double *b, int n) {
    local double part[1024];
    int me = get_local_id(0), width = get_local_size(0);
    double sum = 0;
    for (int at = AT(0); at < n; at += get_global_size(0)) sum += a[at] * b[at];
    part[me] = sum;
    for (int half_width = width / 2; half_width > 0; half_width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < half_width) part[me] += part[me + half_width];
    }
    if (me == 0) sums[get_group_id(0)] = part[0];
}

// Sums of squares, one a workgroup, double.
WIDE void squares(global double *sums, global const double *a, int n) {
    local double part[1024];
    int me = get_local_id(0), width = get_local_size(0);
    double sum = 0;
    for (int at = AT(0); at < n; at += get_global_size(0)) sum += a[at] * a[at];
    part[me] = sum;
    for (int half_width = width / 2; half_width > 0; half_width /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (me < half_width) part[me] += part[me + half_width];
    }
    if (me == 0) sums[get_group_id(0)] = part[0];
}

// A transpose that reads rows, double.
WIDE void transpose_reading_rows(global double *to, global const double *from, int rows, int columns) {
    int x = AT(0), y = AT(1);
    if (x < columns && y < rows) to[x * rows + y] = from[y * columns + x];
}

// A transpose that writes rows, double.
WIDE void transpose_writing_rows(global double *to, global const double *from, int rows, int columns) {
    int x = AT(0), y = AT(1);
    if (x < rows && y < columns) to[y * rows + x] = from[x * columns + y];
}

// A transpose through a padded tile in LDS, double.
WIDE void transpose_by_tiles(global double *to, global const double *from, int rows, int columns) {
    local double tile[32][33];
    int tx = get_local_id(0), ty = get_local_id(1), x = 32 * get_group_id(0), y = 32 * get_group_id(1);
    tile[ty][tx] = from[(y + ty) * columns + x + tx];
    barrier(CLK_LOCAL_MEM_FENCE);
    to[(x + ty) * rows + y + tx] = tile[tx][ty];
}

// A row of a matrix by a vector a lane, double: lanes are a row apart.
kernel void rows_by_vector(global double *y, global const double *a, global const double *x, int n, int m) {
    double sum = 0;
    int i = AT(0);
    if (i >= n) return;
    for (int j = 0; j < m; j++) sum += a[(size_t)i * m + j] * x[j];
    y[i] = sum;
}

// A column of a matrix by a vector a lane, double: lanes are neighbours.
kernel void columns_by_vector(global double *y, global const double *a, global const double *x, int n, int m) {
    double sum = 0;
    int i = AT(0);
    if (i >= n) return;
    for (int j = 0; j < m; j++) sum += a[(size_t)j * n + i] * x[j];
    y[i] = sum;
}

// Finite differences of RADIUS points to either side along a line of a box, float.
#ifdef RADIUS
constant float weights[2 * RADIUS + 1] = {1, 2, 3};
WIDE void line_points(global float *f, global const float *u, int line, int slice, int stride, int nx, int ny, int nz) {
    int i = AT(0), j = AT(1), k = AT(2);
    if (i >= nx || j >= ny || k >= nz) return;
    size_t at = i + RADIUS + (size_t)line * (j + RADIUS) + (size_t)slice * (k + RADIUS);
    global const float *from = u + at - (size_t)RADIUS * stride;
    float sum = 0;
    for (int r = 0; r <= 2 * RADIUS; r++) sum += from[(size_t)r * stride] * weights[r];
    f[at] = sum;
}
#endif

// Streams, double: an element a lane.
WIDE void copy(global double *c, global const double *a) { c[AT(0)] = a[AT(0)]; }
WIDE void scale(global double *b, global const double *c) { b[AT(0)] = 0.4 * c[AT(0)]; }
WIDE void add(global double *c, global const double *a, global const double *b) { c[AT(0)] = a[AT(0)] + b[AT(0)]; }
WIDE void triad(global double *a, global const double *b, global const double *c) { a[AT(0)] = b[AT(0)] + 0.4 * c[AT(0)]; }

// Streams and stencils of which LDS lets a compute unit hold two workgroups, double: an element a lane.
#define TWO_A_UNIT(NAME, FIRST, LAST, VALUE)                                                                             \
    WIDE void NAME(global double *a, global const double *b, global const double *c, long n, int never) {                \
        local double room[4096];                                                                                         \
        long i = AT(0);                                                                                                  \
        if (i < FIRST || i >= n - LAST) return;                                                                          \
        if (never) room[get_local_id(0)] = b[i];                                                                         \
        VALUE;                                                                                                           \
        if (never) a[i] = room[get_local_id(0) ^ 1];                                                                     \
    }
TWO_A_UNIT(two_init, 0, 0, a[i] = 0.25)
TWO_A_UNIT(two_read, 0, 0, if (b[i] == 123.0) a[i] = 1)
TWO_A_UNIT(two_scale, 0, 0, a[i] = b[i] * 1.25)
TWO_A_UNIT(two_triad, 0, 0, a[i] = b[i] * 1.25 + c[i])
TWO_A_UNIT(two_3pt, 1, 1, a[i] = 0.5 * (b[i - 1] + b[i + 1]) - b[i])
TWO_A_UNIT(two_5pt, 2, 2, a[i] = 0.5 * (b[i + 1] + b[i + 2]) + 0.25 * (b[i - 1] + b[i - 2]) - b[i])
