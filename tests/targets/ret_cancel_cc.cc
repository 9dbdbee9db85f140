// cflags: -O2 -pthread
// ret_cancel with C++'s destructors and forced unwinding.
#include "ret_cancel.c"
