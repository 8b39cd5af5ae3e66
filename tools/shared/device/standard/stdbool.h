// The C library's stdbool.h: hip.h has what kernels may use of it.
#pragma once
