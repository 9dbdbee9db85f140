// cflags: -O2 -shared -fPIC
// The library of `loader_locked`, whose constructor runs until it is told to end.
void serve(void);
__attribute__((constructor)) static void construct(void) { serve(); }
