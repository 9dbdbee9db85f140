// cflags: -O2 -pthread
// ret_cancel with C++'s destructors and its view of a forced unwinding.
#include "ret_cancel.c"
