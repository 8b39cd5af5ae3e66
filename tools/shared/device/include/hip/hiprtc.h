// hip.h has all of it.
#pragma once
