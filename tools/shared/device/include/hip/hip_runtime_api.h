// Types that structs of kernels may have; kernels call nothing of it.
#pragma once
typedef struct ihipStream_t *hipStream_t;
