// The C library's stdlib.h: hip.h has what kernels may use of it.
#pragma once
