// hip.h has all of it.
#pragma once
#include <algorithm>
#include <type_traits>
#include <utility>
