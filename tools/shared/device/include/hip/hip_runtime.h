// hip.h has all of it but what hipcc includes by itself.
#pragma once
#include <cmath>
#include <new>
