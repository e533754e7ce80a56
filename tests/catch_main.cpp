// The main of Catch2 2; version 3 brings its own. Compiled once, since it is slow.
#define CATCH_CONFIG_MAIN
#include "catch.h"
