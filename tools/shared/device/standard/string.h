// The C library's string.h: hip.h has what kernels may use of it.
#pragma once
