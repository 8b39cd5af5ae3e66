// The C library's stdio.h: hip.h has what kernels may use of it.
#pragma once
