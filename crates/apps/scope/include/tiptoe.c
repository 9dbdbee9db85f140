/* The one definition that tiptoe.h needs in each program or shared library. */
#define TIPTOE_IMPLEMENTATION
#include "tiptoe.h"
